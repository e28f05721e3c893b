package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/page"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// Exit codes of doctor, besides 0 for success and 1 for an error.
const (
	failedCheckCode  = 2
	inconclusiveCode = 3
)

// exitError ends a command with a specific exit code. Main prints no error, since the command has printed everything.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	listFlags
	selection

	list, strict, probe bool
	failOn              string
	save, from          string
	timeout, wait       time.Duration
	probeAddress        netip.Addr
}

func (c *command) doctor() *cobra.Command {
	f := &doctorFlags{listFlags: listFlags{output: output.List(read.InfraKind).With(htmlFormat)}}
	cmd := c.takesTarget(&cobra.Command{
		Use:   "doctor [INFRA | proxyserver/NAME]",
		Short: "Diagnose problems between a VLAN and its hosted control plane",
		Long: "Check an Infra or a standalone proxy, or all in the namespace. The first failure is the root cause; later findings that it\n" +
			"possibly causes are listed with it. Checks whose data cannot be read do not count as passed.\n\n" +
			"Exit status: 0 no check failed, 1 an error occurred, 2 a check failed, 3 with --strict: data could not be read.",
		Example: "  # Check one Infra, and show all checks\n  kubectl oooi doctor demo -o wide\n\n" +
			"  # Also test from the VLAN, with a short-lived pod\n  kubectl oooi doctor demo --probe\n\n" +
			"  # Write a support bundle, and check it elsewhere\n  kubectl oooi doctor demo --save bundle.tar.gz\n  kubectl oooi doctor --from bundle.tar.gz -A",
	}, func(ctx context.Context, t target) error { return c.runDoctor(ctx, f, t.name) }, infraTarget, proxyTarget)
	flags := cmd.Flags()
	f.selection.add(cmd, "checks with these codes or prefixes of codes, such as OOOI-DNS", checkCodes)
	addChoice(cmd, &f.failOn, "fail-on", "fail", "Lowest severity that causes exit status 2: fail, warn or never", "fail", "warn", "never")
	flags.BoolVar(&f.list, "list", false, "List the checks without running them")
	flags.BoolVar(&f.strict, "strict", false, "Exit with status 3 if no check failed, but data could not be read")
	flags.StringVar(&f.save, "save", "", "Write a support bundle to this file: a tar.gz with the fields that the checks read")
	flags.StringVar(&f.from, "from", "", "Check a bundle written by --save, or a directory of YAML files such as a must-gather, instead of a cluster")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "Maximum time to read the cluster")
	flags.DurationVar(&f.wait, "wait", 0, "Keep checking until healthy, for at most this long")
	flags.BoolVar(&f.probe, "probe", false, "Also probe from the VLAN, with a short-lived pod")
	flags.TextVar(&f.probeAddress, "probe-address", netip.Addr{}, "VLAN `address` of the probe pod (default: a free address of the DHCP range)")
	for _, name := range []string{"save", "wait", "probe", "probe-address"} {
		cmd.MarkFlagsMutuallyExclusive("from", name)
	}
	f.listFlags.add(cmd)
	return cmd
}

// checkCodes returns the codes of all checks.
func checkCodes() []string {
	var codes []string
	for _, check := range doctor.Checks() {
		codes = append(codes, check.Code)
	}
	return codes
}

func (c *command) runDoctor(ctx context.Context, f *doctorFlags, name string) error {
	namespace, err := f.begin(c, name)
	if err == nil {
		err = f.check(checkCodes())
	}
	switch {
	case err != nil:
		return err
	case f.timeout <= 0:
		return errTimeout
	case f.probeAddress.IsValid() && (name == "" || !f.probe):
		return errors.New("--probe-address requires --probe and an Infra; specify its name as an argument")
	}
	if f.list {
		return c.listChecks(f)
	}
	d := &diagnoser{command: c, flags: f, namespace: namespace, name: name}
	if f.from == "" {
		if d.cluster, err = c.connect(); err != nil {
			return err
		}
	}
	err = d.diagnose(ctx)
	if d.facts == nil {
		return err
	}
	if f.save != "" && err == nil {
		err = saveFacts(d.facts, f.save)
	}
	if err := errors.Join(err, d.print(ctx)); err != nil {
		return err
	}
	if !d.orphaned && len(d.list) == 0 && namespace != "" {
		return fmt.Errorf("no Infra or standalone ProxyServer found in namespace %s: nothing was checked; select a namespace with -n, or all with -A", namespace)
	}
	if err := d.exitStatus(); err != nil || !d.orphaned || f.failOn == "never" {
		return err
	}
	return exitError(failedCheckCode)
}

// saveFacts writes the bundle atomically: the file is complete, or unchanged after an error.
func saveFacts(facts *site.Facts, name string) error {
	var b bytes.Buffer
	if err := facts.Save(&b); err != nil {
		return err
	}
	if err := atomicfile.Replace(name, b.Bytes()); err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	return nil
}

// print prints the diagnoses in the output format.
func (d *diagnoser) print(ctx context.Context) error {
	out := d.flags.output
	switch {
	case out.Is(htmlFormat):
		return d.printPage(ctx)
	case !out.Text() && d.name != "" && len(d.list) == 1:
		return out.Print(d.Out, d.list[0])
	case !out.Text() || len(d.list) == 0 && d.namespace == "":
		return printList(d.command, out, d.namespace, "Diagnosis", d.list, &output.Table{})
	}
	for i, one := range d.list {
		if i > 0 {
			fmt.Fprintln(d.Out)
		}
		if err := one.Show(d.Out, out.Wide()); err != nil {
			return err
		}
	}
	return nil
}

// printPage prints the diagnoses as HTML, with drawings of the sites unless a bundle was checked.
func (d *diagnoser) printPage(ctx context.Context) error {
	var sites []*page.Site
	if d.cluster != nil {
		var err error
		if sites, err = d.readSites(ctx, d.namespace, target{name: d.name}); err != nil {
			d.warning("sites are not drawn: " + err.Error())
		}
	}
	for _, one := range d.list {
		at := slices.IndexFunc(sites, func(s *page.Site) bool { return s.Status.Metadata == one.Metadata })
		if at < 0 {
			at = len(sites)
			sites = append(sites, &page.Site{})
		}
		sites[at].Diagnosis, sites[at].Registries = one, registriesOf(d.facts, one.Metadata)
	}
	return d.printSites(d.flags.output, sites)
}

// exitStatus returns an exitError if the command fails because of --fail-on or --strict, else nil.
func (d *diagnoser) exitStatus() error {
	var found, open int
	for _, one := range d.list {
		found += one.Summary[output.Failed]
		if d.flags.failOn == "warn" {
			found += one.Summary[output.Warned]
		}
		open += one.Summary[output.Broken] + one.Summary[output.Skipped]
	}
	switch {
	case found > 0 && d.flags.failOn != "never":
		return exitError(failedCheckCode)
	case open > 0 && d.flags.strict:
		return exitError(inconclusiveCode)
	default:
		return nil
	}
}
