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
	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/page"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
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
	fix, yes          bool
	output            *output.Flags
	choices           []choice
}

func (c *command) doctor() *cobra.Command {
	f := &doctorFlags{output: output.List(read.InfraKind).With(htmlFormat)}
	cmd := &cobra.Command{
		Use:   "doctor [INFRA | proxyserver/NAME]",
		Short: "Diagnose problems between a VLAN and its hosted control plane",
		Long: "Check an Infra or a standalone proxy, or all of the namespace. A check that depends on another one is skipped while that one fails,\n" +
			"so that the output shows the root cause. Data that cannot be read never counts as passed.\n\n" +
			"Exit status: 0 no check failed, 1 an error occurred, 2 a check failed (see --fail-on), 3 with --strict: no check\n" +
			"failed, but data could not be read.",
		Example: "  # Check one Infra\n  kubectl oooi doctor demo\n\n  # Show all checks\n  kubectl oooi doctor demo -o wide\n\n" +
			"  # Fix what can be fixed without risk, after a question for each change\n  kubectl oooi doctor demo --fix\n\n" +
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
	flags.BoolVar(&f.fix, "fix", false, "Ask for each fault with a reversible remedy whether to apply it, and check again")
	flags.BoolVarP(&f.yes, "yes", "y", false, "With --fix, do not ask for confirmation")
	f.output.Add(cmd)
	return cmd
}

func (c *command) runDoctor(ctx context.Context, f *doctorFlags, name string) error {
	checks, err := doctor.Checks()
	if err != nil {
		return err //nolint:wrapcheck // error of an internal package
	}
	if err := f.check(checks); err != nil {
		return err
	}
	if f.list {
		return c.listChecks(f, checks)
	}
	namespace, err := c.listNamespace(f.all, name)
	if err != nil {
		return err
	}
	if f.probeAddress != "" && name == "" {
		return errors.New("--probe-address requires an Infra; specify its name as argument")
	}
	ask := func(string) (bool, error) { return true, nil }
	if f.fix && !f.yes {
		q, err := c.newQuestioner()
		if err != nil {
			return err
		}
		ask = q.ask
	}
	var to *connection // nil if a bundle is checked
	if f.from == "" {
		if to, err = c.connect(); err != nil {
			return err
		}
	}
	result, err := c.diagnose(ctx, to, f, checks, namespace, name, f.wait, func(list []*doctor.Diagnosis) bool { return f.exitStatus(list) == nil })
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
	if f.fix {
		if result, err = c.fixAndCheck(ctx, to, f, checks, namespace, name, result, ask); err != nil {
			return err
		}
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

// diagnosed has the facts that were read, and a diagnosis for each Infra.
type diagnosed struct {
	facts *doctor.Facts
	list  []*doctor.Diagnosis
}

// diagnose reads the cluster and runs the checks. It repeats this until done returns true or wait is over. It shows
// progress on a terminal. If it is interrupted, it returns an error with the last diagnoses, nil if there are none.
func (c *command) diagnose(ctx context.Context, to *connection, f *doctorFlags, checks []doctor.Check, namespace, name string, wait time.Duration, done func([]*doctor.Diagnosis) bool) (*diagnosed, error) {
	p := startProgress(c.ErrOut)
	defer p.stop()
	var last *diagnosed
	for end := time.Now().Add(wait); ; {
		l, err := c.diagnoseOnce(ctx, to, f, checks, namespace, name, p)
		if l != nil {
			last = l
		}
		left := time.Until(end)
		if err != nil || done(l.list) || left <= 0 {
			return last, err
		}
		p.set("waiting: " + firstFinding(l.list))
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("waiting for the checks to pass: %w", context.Cause(ctx))
		case <-time.After(min(left, diagnoseInterval)):
		}
	}
}

// diagnoseInterval is the pause between two rounds of --wait.
const diagnoseInterval = 2 * time.Second

// diagnoseOnce reads the cluster or the bundle, and runs the selected checks on each Infra. If it is
// interrupted while it probes, it returns an error with the diagnoses of what was read.
func (c *command) diagnoseOnce(ctx context.Context, to *connection, f *doctorFlags, checks []doctor.Check, namespace, name string, p *progress) (*diagnosed, error) {
	readCtx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	p.set("reading")
	facts, names, err := c.readInTime(readCtx, to, f, checks, namespace, name)
	if facts != nil {
		facts.Plugin = release.Version()
	}
	if err != nil {
		return nil, err
	}
	var unprobed error
	if f.probe {
		p.set("probing")
		unprobed = to.probe(ctx, f, facts, names)
	}
	l := &diagnosed{facts: facts}
	for i, infra := range names {
		p.set(fmt.Sprintf("checking %s, %d of %d", infra, i+1, len(names)))
		if site := doctor.NewSite(facts, infra); site != nil {
			l.list = append(l.list, doctor.Diagnose(site, checks, f.selected))
		}
	}
	return l, unprobed
}

// timeoutError is the error of reading a cluster that does not answer within --timeout.
type timeoutError string

func (e timeoutError) Error() string { return string(e) }

// readInTime is readFacts, and returns when ctx ends. Discovery of the API server's kinds does not end with ctx.
func (c *command) readInTime(ctx context.Context, to *connection, f *doctorFlags, checks []doctor.Check, namespace, name string) (facts *doctor.Facts, names []string, err error) {
	done := make(chan func(), 1)
	go func() {
		readFacts, readNames, readErr := c.readFacts(ctx, to, f, checks, namespace, name)
		done <- func() { facts, names, err = readFacts, readNames, readErr }
	}()
	select {
	case take := <-done:
		take()
	case <-ctx.Done():
		select {
		case take := <-done:
			take()
		case <-time.After(abandonAfter):
			err = context.Cause(ctx)
		}
	}
	if err != nil && to != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = timeoutError(fmt.Sprintf("the API server at %s did not answer within --timeout %s: %v; 'kubectl get --raw /readyz?verbose' shows whether its etcd answers", to.config.Host, f.timeout, err))
	}
	return facts, names, err
}

// abandonAfter is how long a request may take to return after its context has ended.
const abandonAfter = 500 * time.Millisecond

// firstFinding returns the most severe finding of all diagnoses as one line; empty if there is none.
func firstFinding(list []*doctor.Diagnosis) string {
	for _, status := range []doctor.Status{doctor.Failed, doctor.Broken, doctor.Warned, doctor.Skipped} {
		for _, d := range list {
			for i := range d.Results {
				r := &d.Results[i]
				switch {
				case r.Status != status || status == doctor.Skipped && !r.Inconclusive:
				case len(r.Findings) > 0:
					return fmt.Sprintf("%s %s: %s", r.Code, r.Findings[0].Object, r.Findings[0].Message)
				default:
					return r.Code + " " + r.Reason
				}
			}
		}
	}
	return ""
}

// check rejects invalid flags before the cluster is read.
func (f *doctorFlags) check(checks []doctor.Check) error {
	if err := checkChoices(f.choices); err != nil {
		return err
	}
	if f.save != "" && f.from != "" {
		return errors.New("--save and --from are mutually exclusive")
	}
	if f.wait > 0 && f.from != "" {
		return errors.New("--wait and --from are mutually exclusive: a bundle does not change")
	}
	if f.probe && f.from != "" {
		return errors.New("--probe and --from are mutually exclusive: a bundle contains the results of a probe if it was saved with --probe")
	}
	if f.fix && f.from != "" {
		return errors.New("--fix and --from are mutually exclusive: a bundle cannot be fixed")
	}
	if f.list && f.output.Is(htmlFormat) {
		return errors.New("--list prints no page; omit --output, or use one of kubectl's formats")
	}
	if f.fix && (!f.output.Text() || f.output.Is(htmlFormat)) {
		return errors.New("--fix prints text only; omit --output, or use -o wide")
	}
	if f.yes && !f.fix {
		return errors.New("--yes requires --fix")
	}
	if f.probeAddress != "" {
		if _, err := netip.ParseAddr(f.probeAddress); err != nil || !f.probe {
			return fmt.Errorf("--probe-address %q must be an IP address, and requires --probe", f.probeAddress)
		}
	}
	if f.save == "-" {
		return errors.New("--save -: findings are written to stdout; specify a file")
	}
	if f.timeout <= 0 {
		return errTimeout
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

// readFacts reads from the cluster, or from the bundle of --from if to is nil. It returns the facts and the Infras to
// check, as "namespace/name".
func (c *command) readFacts(ctx context.Context, to *connection, f *doctorFlags, checks []doctor.Check, namespace, name string) (*doctor.Facts, []string, error) {
	if to == nil {
		facts, err := doctor.Load(f.from, c.warning)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // error of an internal package
		}
		names := facts.Infras(namespace, name)
		if len(names) == 0 && name != "" {
			return nil, nil, fmt.Errorf("%s has no Infra %s/%s; select its namespace with -n, or omit the name and use -A", f.from, namespace, name)
		}
		return facts, names, nil
	}
	collector := &doctor.Collector{Client: to.client, Config: to.config, Checks: checks, Now: time.Now().UTC()}
	return collector.Collect(ctx, namespace, name) //nolint:wrapcheck // error of an internal package
}

// probesAtOnce limits how many probe pods run at a time.
const probesAtOnce = 4

// probe runs a probe pod on the VLAN of each Infra, and adds the results to the facts.
func (to *connection) probe(ctx context.Context, f *doctorFlags, facts *doctor.Facts, names []string) error {
	prober := &doctor.Prober{Client: to.client, Config: to.config, AddressFlag: "--probe-address"}
	prober.Address, _ = netip.ParseAddr(f.probeAddress) // validated by check; the zero Addr if the flag is not set
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(probesAtOnce)
	for _, infra := range names {
		if site := doctor.NewSite(facts, infra); site != nil && site.Standalone != nil {
			continue // the checks of the probe are about an Infra
		}
		group.Go(func() error { return prober.Probe(each, facts, infra) })
	}
	return group.Wait() //nolint:wrapcheck // error of an internal package
}

// saveFacts writes the bundle atomically: the file is complete, or unchanged after an error.
func saveFacts(facts *doctor.Facts, name string) error {
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
		found += d.Summary[doctor.Failed]
		if f.failOn == "warn" {
			found += d.Summary[doctor.Warned]
		}
		open += d.Summary[doctor.Broken]
		for _, r := range d.Results {
			if r.Inconclusive {
				open++
			}
		}
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
