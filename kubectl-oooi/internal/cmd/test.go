package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// Output formats of test, besides those of kubectl.
const (
	wideFormat  = "wide"
	junitFormat = "junit"
)

// testFlags are the flags of test.
type testFlags struct {
	list, cleanup, rights bool
	disruptive, yes       bool
	only, skip            []string
	timeout               time.Duration
	address, upstream     string
	vmImage               string
	output                *output.Flags
}

func (c *command) test() *cobra.Command {
	f := &testFlags{output: output.Single().With(wideFormat, junitFormat, htmlFormat)}
	cmd := &cobra.Command{
		Use:   "test [INFRA]",
		Short: "Test an Infra from a pod on the VLAN and one in the pod network",
		Long: "Start a pod on the VLAN and one in the pod network, and test from there what VMs and pods use: DHCP, DNS, TLS to the control\n" +
			"plane, apps, large packets, and that other hosted clusters cannot be reached. The expected results are those that the\n" +
			"objects define. The pods use the image of the Infra's pods, and everything is deleted at the end.\n\n" +
			"Exit status: 0 no scenario failed, 1 an error occurred, 2 a scenario failed or could not run.",
		Example: "  # Test the only Infra of a namespace\n  kubectl oooi test -n clusters\n\n  # Test only DHCP and the names on the VLAN\n  kubectl oooi test demo --only dhcp,dns-vlan\n\n" +
			"  # Write a report for CI, or one with a drawing of the site\n  kubectl oooi test demo -o junit > report.xml\n  kubectl oooi test demo -o html > report.html\n\n  # Also measure what VMs do without while pods are replaced\n  kubectl oooi test demo --disruptive\n\n  # Show the rights that a user needs\n  kubectl oooi test --print-rbac",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeInfras,
		RunE:              withTarget(func(ctx context.Context, t target) error { return c.runTest(ctx, f, t.name) }, infraTarget),
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.list, "list", false, "List the scenarios without running them")
	flags.StringSliceVar(&f.only, "only", nil, "Run only scenarios with these names or prefixes of names, such as dns-vlan")
	flags.StringSliceVar(&f.skip, "skip", nil, "Do not run scenarios with these names or prefixes of names")
	for _, name := range []string{"only", "skip"} {
		completeFlag(cmd, name, completeScenarios)
	}
	flags.BoolVar(&f.disruptive, "disruptive", false, "Also delete each pod of the Infra, and cut its pods off from the API server, and measure what VMs do without meanwhile")
	flags.BoolVarP(&f.yes, "yes", "y", false, "With --disruptive and --cleanup, do not ask for confirmation")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "Maximum time of the test, without deleting its objects; 15m with --disruptive or --vm-image unless it is set")
	flags.StringVar(&f.address, "address", "", "VLAN address of the pod on the VLAN (default: a free address of the DHCP range)")
	flags.StringVar(&f.upstream, "upstream-name", "", "Name that the upstream resolvers must resolve (default: any reply is accepted)")
	flags.StringVar(&f.vmImage, "vm-image", "", "Also boot a VM on the VLAN from this containerDisk image, which must use DHCP")
	flags.BoolVar(&f.cleanup, "cleanup", false, "Delete the objects of interrupted tests of the Infra, and do not test")
	flags.BoolVar(&f.rights, "print-rbac", false, "Print a ClusterRole with the rights that the command needs, and do not test")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if (f.disruptive || f.vmImage != "") && !flags.Changed("timeout") {
			f.timeout = 15 * time.Minute
		}
		for _, name := range []string{"only", "skip", "address", "upstream-name", "vm-image"} {
			if value := flags.Lookup(name).Value.String(); flags.Changed(name) && strings.Trim(value, "[]") == "" { // such as an unset variable in a script
				return fmt.Errorf("--%s is empty; specify a value, or omit the flag", name)
			}
		}
		return nil
	}
	f.output.Add(cmd)
	return cmd
}

func completeScenarios(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var list []string
	for _, s := range verify.Scenarios() {
		list = append(list, s.Name+"\t"+s.Title)
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

func (c *command) runTest(ctx context.Context, f *testFlags, name string) error {
	selected, err := f.scenarios()
	if err != nil {
		return err
	}
	switch {
	case f.list && (f.output.Is(junitFormat) || f.output.Is(htmlFormat)):
		return errors.New("--list prints no report; omit --output, or use one of kubectl's formats")
	case f.list:
		return c.listScenarios(f, selected)
	case f.rights:
		text, err := yaml.Marshal(verify.Role(f.disruptive, f.vmImage != ""))
		if err != nil {
			return fmt.Errorf("encoding the ClusterRole: %w", err)
		}
		_, err = c.Out.Write(text)
		return err //nolint:wrapcheck // of the terminal
	}
	runner := &verify.Runner{Scenarios: selected, Upstream: f.upstream, VMImage: f.vmImage, Version: release.Version(), Progress: func(string) {}}
	to, err := c.connect()
	if err != nil {
		return err
	}
	runner.Prober = &verify.Prober{Client: to.client, Config: to.config, AddressFlag: "--address"}
	if f.address != "" {
		if runner.Prober.Address, err = netip.ParseAddr(f.address); err != nil {
			return fmt.Errorf("--address %q: want an IP address", f.address)
		}
	}
	if name, err = c.soleInfra(ctx, name); err != nil {
		return err
	}
	if f.cleanup {
		n, err := runner.CleanUp(ctx, c.namespace(), name, func(age time.Duration) (bool, error) {
			return c.confirm(f, fmt.Sprintf("A test of Infra %s/%s began %s ago and may still run. Delete its objects?", c.namespace(), name, age.Round(time.Second)))
		})
		if err != nil && n == 0 {
			return err //nolint:wrapcheck // error of an internal package
		}
		fmt.Fprintf(c.ErrOut, "deleted %d objects of interrupted tests of Infra %s/%s\n", n, c.namespace(), name)
		return err //nolint:wrapcheck // error of an internal package
	}
	if f.disruptive {
		question := fmt.Sprintf("Delete each pod of Infra %s/%s, one after the other, and cut its pods off from the API server for a minute? With one replica, VMs do without "+
			"the service until its new pod runs.", c.namespace(), name)
		if yes, err := c.confirm(f, question); err != nil {
			return err
		} else if !yes {
			return errors.New("not confirmed; nothing was tested")
		}
	}
	report, err := c.testInfra(ctx, f, to, runner, name)
	if report == nil || err != nil && report.Summary[output.Passed]+report.Summary[output.Failed] == 0 {
		return err
	}
	if err := errors.Join(c.printTest(ctx, f, report), err); err != nil {
		return err
	}
	if report.Failed() {
		return exitError(failedCheckCode)
	}
	return nil
}

// confirm asks a question, unless --yes is set.
func (c *command) confirm(f *testFlags, question string) (bool, error) {
	if f.yes {
		return true, nil
	}
	return c.ask(question)
}

// testInfra reads the site and runs the scenarios, with progress on a terminal.
func (c *command) testInfra(ctx context.Context, f *testFlags, to *connection, runner *verify.Runner, name string) (*verify.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the test did not end within --timeout %s", f.timeout))
	defer cancel()
	p := startProgress(c.ErrOut)
	defer p.stop()
	p.set("reading")
	printed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(printed)
		if _, interrupted := errors.AsType[InterruptedError](context.Cause(ctx)); interrupted {
			p.print(fmt.Sprintf("deleting the objects of the test; press Ctrl-C again to leave them, and then run 'kubectl oooi test %s -n %s --cleanup'", name, c.namespace()))
		}
	})
	defer func() {
		if !stop() {
			<-printed
		}
	}()
	collector := &site.Collector{Client: to.client, Reads: verify.Reads(), Now: time.Now().UTC()}
	facts, names, err := collector.Collect(ctx, c.namespace(), name)
	if err != nil {
		return nil, err //nolint:wrapcheck // error of an internal package
	}
	runner.Facts, runner.Infra, runner.Progress = facts, names[0], p.set
	return runner.Run(ctx) //nolint:wrapcheck // error of an internal package
}

// soleInfra returns the name, or without one that of the only Infra in the namespace.
func (c *command) soleInfra(ctx context.Context, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	r, err := c.reader()
	if err != nil {
		return "", err
	}
	infras, err := r.Infras(ctx, c.namespace())
	if err != nil {
		return "", err //nolint:wrapcheck // error of an internal package
	}
	if len(infras) != 1 {
		return "", fmt.Errorf("namespace %s has %d Infras; specify the name of one", c.namespace(), len(infras))
	}
	return infras[0].Name, nil
}

// scenarios returns the scenarios that --only and --skip select, and rejects invalid flags.
func (f *testFlags) scenarios() ([]verify.Scenario, error) {
	if err := f.output.Check(); err != nil {
		return nil, err
	}
	if f.timeout <= 0 {
		return nil, errTimeout
	}
	if problems := validation.IsDNS1123Subdomain(strings.TrimSuffix(strings.ToLower(f.upstream), ".")); f.upstream != "" && len(problems) > 0 {
		return nil, fmt.Errorf("--upstream-name %q: want a domain name", f.upstream)
	}
	if _, err := reference.ParseDockerRef(f.vmImage); f.vmImage != "" && err != nil {
		return nil, fmt.Errorf("--vm-image %q: %w", f.vmImage, err)
	}
	if f.cleanup && (!f.output.Text() || f.output.Is(junitFormat) || f.output.Is(htmlFormat)) {
		return nil, errors.New("--cleanup prints no report; omit --output")
	}
	all := verify.Scenarios()
	for _, prefix := range slices.Concat(f.only, f.skip) {
		if prefix == "" || !slices.ContainsFunc(all, func(s verify.Scenario) bool { return strings.HasPrefix(s.Name, prefix) }) {
			return nil, fmt.Errorf("unknown scenario %q; use 'kubectl oooi test --list' to list the scenarios", prefix)
		}
	}
	all = slices.DeleteFunc(all, func(s verify.Scenario) bool {
		matches := func(prefix string) bool { return strings.HasPrefix(s.Name, prefix) }
		if !f.list && (s.Group == verify.GroupDisruption && !f.disruptive || s.Name == verify.VMScenario && f.vmImage == "") {
			return true
		}
		return len(f.only) > 0 && !slices.ContainsFunc(f.only, matches) || slices.ContainsFunc(f.skip, matches)
	})
	if len(all) == 0 {
		return nil, errors.New("--only and --skip leave no scenario to run; disruptive ones also need --disruptive, and dhcp-vm needs --vm-image")
	}
	return all, nil
}

// printTest prints a report. For a page, it also reads the state of the site.
func (c *command) printTest(ctx context.Context, f *testFlags, report *verify.Report) error {
	switch {
	case f.output.Is(junitFormat):
		return report.JUnit(c.Out) //nolint:wrapcheck // error of an internal package
	case f.output.Is(htmlFormat):
		sites, err := c.readSites(ctx, report.Metadata.Namespace, target{kind: infraTarget, name: report.Metadata.Name})
		if err != nil {
			return err
		}
		sites[0].Test = report
		return c.printSites(f.output, sites)
	case f.output.Text():
		return report.Show(c.Out, f.output.Is(wideFormat)) //nolint:wrapcheck // error of an internal package
	}
	return f.output.Print(c.Out, report) //nolint:wrapcheck // error of an internal package
}

// A scenarioReport is one scenario as test --list prints it.
type scenarioReport struct {
	metav1.TypeMeta `json:",inline"`

	Metadata checkName       `json:"metadata"`
	Group    string          `json:"group"`
	Clients  []verify.Client `json:"clients"`
	Title    string          `json:"title"`
}

// listScenarios prints the selected scenarios for --list.
func (c *command) listScenarios(f *testFlags, selected []verify.Scenario) error {
	var list []*scenarioReport
	for i := range selected {
		s := &selected[i]
		list = append(list, &scenarioReport{
			TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Scenario"}, Metadata: checkName{s.Name}, Group: s.Group, Clients: s.Clients, Title: s.Title,
		})
	}
	columns := []output.Column[*scenarioReport]{
		{Title: "NAME", Value: func(r *scenarioReport) string { return r.Metadata.Name }},
		{Title: "FROM", Value: func(r *scenarioReport) string { return strings.Trim(fmt.Sprint(r.Clients), "[]") }},
		{Title: "PASSES IF", Value: func(r *scenarioReport) string { return r.Title }},
	}
	return printList(c, f.output, "", "Scenario", list, output.NewTable(columns, list, false))
}
