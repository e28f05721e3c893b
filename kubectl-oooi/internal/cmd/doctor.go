package cmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// exitError ends a command with an exit code of its own. Everything has been printed, so Main prints no error.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	all, list, strict bool
	only, skip        []string
	failOn            string
	save, from        string
	timeout, wait     time.Duration
	probe             bool
	probeAddress      string
	output            *output.Flags
	choices           []choice
}

func (c *command) doctor() *cobra.Command {
	f := &doctorFlags{output: output.List(read.InfraKind).With(htmlFormat)}
	cmd := &cobra.Command{
		Use:   "doctor [INFRA | proxyserver/NAME]",
		Short: "Diagnose problems between a VLAN and its hosted control plane",
		Long: "Check an Infra or a standalone proxy, or all of the namespace. Checks run in stages, whose order is the order of causes: the\n" +
			"first failure is the root, and later findings that it possibly causes follow it. Data that cannot be read never counts as\n" +
			"passed.\n\n" +
			"Exit status: 0 no check failed, 1 an error occurred, 2 a check failed (see --fail-on), 3 with --strict: no check\n" +
			"failed, but data could not be read.",
		Example: "  # Check one Infra\n  kubectl oooi doctor demo\n\n  # Show all checks\n  kubectl oooi doctor demo -o wide\n\n" +
			"  # Also test from the VLAN, with a short-lived pod\n  kubectl oooi doctor demo --probe\n\n" +
			"  # Write a support bundle, and check it elsewhere\n  kubectl oooi doctor demo --save bundle.tar.gz\n  kubectl oooi doctor --from bundle.tar.gz -A",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeProxies,
		RunE:              withTarget(func(ctx context.Context, t target) error { return c.runDoctor(ctx, f, t.name) }, infraTarget, proxyTarget),
	}
	flags := cmd.Flags()
	addAllNamespaces(cmd, &f.all)
	flags.BoolVar(&f.list, "list", false, "List the checks without running them")
	flags.StringSliceVar(&f.only, "only", nil, "Show only checks with these codes or prefixes of codes, such as OOOI-DNS")
	flags.StringSliceVar(&f.skip, "skip", nil, "Do not show checks with these codes or prefixes of codes")
	f.choices = append(f.choices, addChoice(cmd, &f.failOn, "fail-on", "fail", "Lowest severity that causes exit status 2: fail, warn or never", "fail", "warn", "never"))
	for _, name := range []string{"only", "skip"} {
		completeFlag(cmd, name, completeChecks)
	}
	flags.BoolVar(&f.strict, "strict", false, "Exit with status 3 if no check failed, but data could not be read")
	flags.StringVar(&f.save, "save", "", "Write a support bundle to this file: a tar.gz with the fields that the checks read")
	flags.StringVar(&f.from, "from", "", "Check a bundle written by --save, or a directory of YAML files such as a must-gather, instead of a cluster")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "Maximum time to read the cluster")
	flags.DurationVar(&f.wait, "wait", 0, "Keep checking until healthy, for at most this long")
	flags.BoolVar(&f.probe, "probe", false, "Also probe from the VLAN, with a short-lived pod")
	flags.StringVar(&f.probeAddress, "probe-address", "", "VLAN address of the probe pod (default: a free address of the DHCP range)")
	f.output.Add(cmd)
	return cmd
}

func (c *command) runDoctor(ctx context.Context, f *doctorFlags, name string) error {
	checks := doctor.Checks()
	if err := f.check(checks); err != nil {
		return err
	}
	if f.list {
		return c.listChecks(f)
	}
	namespace, err := c.listNamespace(f.all, name)
	if err != nil {
		return err
	}
	if f.probeAddress != "" && name == "" {
		return errors.New("--probe-address requires an Infra; specify its name as argument")
	}
	var to *connection // nil if a bundle is checked
	if f.from == "" {
		if to, err = c.connect(); err != nil {
			return err
		}
	}
	result, err := c.diagnose(ctx, to, f, namespace, name)
	if err != nil && result != nil {
		return errors.Join(err, c.printDiagnoses(ctx, f, result.list, namespace, name))
	}
	orphaned := false
	if to != nil && !errors.As(err, new(timeoutError)) && ctx.Err() == nil {
		orphansErr := withTimeout(ctx, f.timeout, func(ctx context.Context) (err error) {
			orphaned, err = c.warnOrphans(ctx, to.client, namespace)
			return err
		})
		if err == nil {
			err = orphansErr
		}
	}
	if err != nil {
		return err
	}
	if f.save != "" {
		if err := saveFacts(result.facts, f.save); err != nil {
			return err
		}
	}
	if err := c.printDiagnoses(ctx, f, result.list, namespace, name); err != nil {
		return err
	}
	if err := f.exitStatus(result.list); err != nil {
		return err
	}
	switch {
	case orphaned && f.failOn != "never":
		return exitError(failedCheckCode)
	case !orphaned && len(result.list) == 0 && namespace != "":
		return fmt.Errorf("no Infra or standalone ProxyServer found in namespace %s: nothing was checked; select a namespace with -n, or all with -A", namespace)
	default:
		return nil
	}
}

// check rejects invalid flags before the cluster is read.
func (f *doctorFlags) check(checks []doctor.Check) error {
	if err := checkChoices(f.choices); err != nil {
		return err
	}
	switch {
	case f.save != "" && f.from != "":
		return errors.New("--save and --from are mutually exclusive")
	case f.wait > 0 && f.from != "":
		return errors.New("--wait and --from are mutually exclusive: a bundle does not change")
	case f.probe && f.from != "":
		return errors.New("--probe and --from are mutually exclusive: a bundle contains the results of a probe if it was saved with --probe")
	case f.list && f.output.Is(htmlFormat):
		return errors.New("--list prints no page; omit --output, or use one of kubectl's formats")
	case f.save == "-":
		return errors.New("--save -: findings are written to stdout; specify a file")
	case f.timeout <= 0:
		return errTimeout
	}
	if f.probeAddress != "" {
		if _, err := netip.ParseAddr(f.probeAddress); err != nil || !f.probe {
			return fmt.Errorf("--probe-address %q must be an IP address, and requires --probe", f.probeAddress)
		}
	}
	for _, code := range slices.Concat(f.only, f.skip) {
		if !slices.ContainsFunc(checks, func(c doctor.Check) bool { return strings.HasPrefix(c.Code, strings.ToUpper(code)) }) {
			return fmt.Errorf("unknown check %s; use 'kubectl oooi doctor --list' to list the checks", code)
		}
	}
	if !slices.ContainsFunc(checks, func(c doctor.Check) bool { return f.selected(c.Code) }) {
		return errors.New("--only and --skip leave no check to run")
	}
	return f.output.Check()
}

// errTimeout rejects a timeout with which a command would do nothing.
var errTimeout = errors.New("--timeout must be greater than 0")

// selected reports whether --only and --skip include a check.
func (f *doctorFlags) selected(code string) bool {
	matches := func(prefix string) bool { return strings.HasPrefix(code, strings.ToUpper(prefix)) }
	return (len(f.only) == 0 || slices.ContainsFunc(f.only, matches)) && !slices.ContainsFunc(f.skip, matches)
}

// saveFacts writes the bundle atomically: the file is complete, or unchanged after an error.
func saveFacts(facts *site.Facts, name string) error {
	var b bytes.Buffer
	if err := facts.Save(&b); err != nil {
		return err //nolint:wrapcheck // error of an internal package
	}
	if err := atomicfile.Replace(name, b.Bytes()); err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	return nil
}

func (c *command) printDiagnoses(ctx context.Context, f *doctorFlags, list []*doctor.Diagnosis, namespace, name string) error {
	if f.output.Is(htmlFormat) {
		return c.printDiagnosesPage(ctx, f, list, namespace, name)
	}
	if f.output.Text() {
		if len(list) == 0 && namespace == "" {
			c.printNoResources(namespace)
		}
		for i, d := range list {
			if i > 0 {
				fmt.Fprintln(c.Out)
			}
			if err := d.Show(c.Out, f.output.Wide()); err != nil {
				return err //nolint:wrapcheck // error of an internal package
			}
		}
		return nil
	}
	var report any = output.ListOf("Diagnosis", list)
	if name != "" && len(list) == 1 {
		report = list[0]
	}
	return f.output.Print(c.Out, report)
}

// printDiagnosesPage prints a page about the diagnoses. It has drawings unless a bundle was checked.
func (c *command) printDiagnosesPage(ctx context.Context, f *doctorFlags, list []*doctor.Diagnosis, namespace, name string) error {
	var sites []*page.Site
	if f.from == "" {
		var err error
		if sites, err = c.readSites(ctx, namespace, target{name: name}); err != nil {
			c.warning("sites are not drawn: " + err.Error())
		}
	}
	for _, d := range list {
		at := slices.IndexFunc(sites, func(s *page.Site) bool { return s.Status.Metadata == d.Metadata })
		if at < 0 {
			at = len(sites)
			sites = append(sites, &page.Site{})
		}
		sites[at].Diagnosis = d
	}
	return c.printSites(f.output, sites)
}

// exitStatus returns an exitError if the command fails because of --fail-on or --strict, else nil.
func (f *doctorFlags) exitStatus(list []*doctor.Diagnosis) error {
	var found, open int
	for _, d := range list {
		found += d.Summary[output.Failed]
		if f.failOn == "warn" {
			found += d.Summary[output.Warned]
		}
		open += d.Summary[output.Broken] + d.Summary[output.Skipped]
	}
	switch {
	case found > 0 && f.failOn != "never":
		return exitError(failedCheckCode)
	case open > 0 && f.strict:
		return exitError(inconclusiveCode)
	default:
		return nil
	}
}
