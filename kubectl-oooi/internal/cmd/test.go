package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
)

// Output formats of test, besides kubectl's.
const (
	wideFormat  = "wide"
	junitFormat = "junit"
)

// testFlags are the flags of test.
type testFlags struct {
	selection

	rights, disruptive, yes bool
	timeout                 time.Duration
	address                 netip.Addr
	upstream                string
	output                  *output.Flags
}

func (c *command) test() *cobra.Command {
	f := &testFlags{output: output.Single().With(wideFormat, junitFormat, htmlFormat)}
	cmd := &cobra.Command{
		Use:   "test [INFRA]",
		Short: "Test an Infra from a pod on the VLAN and one in the pod network",
		Long: "Start a pod on the VLAN and one in the pod network, and test the services for VMs and pods: DHCP, DNS, TLS to the control\n" +
			"plane, apps, large packets, and isolation from other hosted clusters. All created objects are deleted at the end.\n\n" +
			"Exit status: 0 no scenario failed, 1 an error occurred, 2 a scenario failed or could not run.",
		Example: "  # Test an Infra\n  kubectl oooi test demo\n\n" +
			"  # Test only DHCP and the names on the VLAN, and write a report for CI\n  kubectl oooi test demo --only dhcp,dns-vlan -o junit > report.xml\n\n" +
			"  # Also measure interruptions while pods are replaced\n  kubectl oooi test demo --disruptive",
	}
	c.takesTarget(cmd, func(ctx context.Context, t target) error {
		if f.disruptive && !cmd.Flags().Changed("timeout") {
			f.timeout = 15 * time.Minute
		}
		var err error
		cmd.Flags().Visit(func(flag *pflag.Flag) { // such as an unset variable in a script
			if strings.Trim(flag.Value.String(), "[]") == "" {
				err = fmt.Errorf("--%s is empty; specify a value, or omit the flag", flag.Name)
			}
		})
		if err != nil {
			return err
		}
		return c.runTest(ctx, f, t.name)
	}, infraTarget)
	flags := cmd.Flags()
	f.add(cmd, "scenarios with these names or prefixes of names, such as dns-vlan", func() []string { return scenarioNames(verify.Scenarios()) })
	flags.BoolVar(&f.disruptive, "disruptive", false,
		"Also delete the Infra's pods, one after the other, and measure the interruptions for VMs")
	flags.BoolVarP(&f.yes, "yes", "y", false, "With --disruptive, do not ask for confirmation")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Minute,
		"Maximum time of the test, without deleting its objects; the default is 15m with --disruptive")
	flags.TextVar(&f.address, "address", netip.Addr{}, "VLAN `address` of the pod on the VLAN (default: a free address of the DHCP range)")
	flags.StringVar(&f.upstream, "upstream-name", "", "Name that the upstream resolvers must resolve (default: any reply is accepted)")
	flags.BoolVar(&f.rights, "print-rbac", false, "Print a ClusterRole with the permissions that the command needs, without testing")
	f.output.Add(cmd)
	return cmd
}

func scenarioNames(list []verify.Scenario) []string {
	var names []string
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

func (c *command) runTest(ctx context.Context, f *testFlags, name string) error {
	selected, err := f.scenarios()
	if err != nil {
		return err
	}
	if f.rights {
		text, err := yaml.Marshal(verify.Role(f.disruptive))
		if err != nil {
			return fmt.Errorf("encoding the ClusterRole: %w", err)
		}
		_, err = c.Out.Write(text)
		return err
	}
	if name == "" {
		return errors.New("specify the name of an Infra")
	}
	to, err := c.connect()
	if err != nil {
		return err
	}
	runner := &verify.Runner{
		Client: to.client, Config: to.config, AddressFlag: "--address", Address: f.address, Scenarios: selected,
		Upstream: f.upstream, Version: release.Version(), Progress: c.progress,
	}
	if f.disruptive && !f.yes {
		yes, err := c.confirm(fmt.Sprintf("Delete each pod of Infra %s, one after the other? With one replica, the service is interrupted until its new pod runs.",
			c.namespace()+"/"+name))
		if err != nil {
			return err
		}
		if !yes {
			return errors.New("not confirmed; nothing was tested")
		}
	}
	report, err := c.testInfra(ctx, f, to, runner, name)
	if report == nil || err != nil && report.Summary[output.Passed]+report.Summary[output.Failed] == 0 {
		return err
	}
	if err := errors.Join(c.printTest(ctx, f, report, runner.Facts), err); err != nil {
		return err
	}
	if report.Failed() {
		return exitError(failedCheckCode)
	}
	return nil
}

// testInfra reads the site and runs the scenarios.
func (c *command) testInfra(ctx context.Context, f *testFlags, to *connection, runner *verify.Runner, name string) (*verify.Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("the test did not end within --timeout %s", f.timeout))
	defer cancel()
	printed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(printed)
		if _, interrupted := errors.AsType[InterruptedError](context.Cause(ctx)); interrupted {
			fmt.Fprintln(c.ErrOut, "deleting the test's objects; press Ctrl-C again to leave them, until they expire within minutes")
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
		return nil, err
	}
	runner.Facts, runner.Infra = facts, names[0]
	return runner.Run(ctx)
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
		return nil, fmt.Errorf("--upstream-name %q: must be a domain name", f.upstream)
	}
	all := verify.Scenarios()
	if err := f.check(scenarioNames(all)); err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s verify.Scenario) bool {
		return !f.contains(s.Name) || s.Group == verify.GroupDisruption && !f.disruptive
	})
	if len(all) == 0 {
		return nil, errors.New("--only and --skip leave no scenario to run; disruptive scenarios also require --disruptive")
	}
	return all, nil
}

// printTest prints a report. For HTML, it also reads the state of the site.
func (c *command) printTest(ctx context.Context, f *testFlags, report *verify.Report, facts *site.Facts) error {
	switch {
	case f.output.Is(junitFormat):
		return report.JUnit(c.Out)
	case f.output.Is(htmlFormat):
		sites, err := c.readSites(ctx, report.Metadata.Namespace, target{kind: infraTarget, name: report.Metadata.Name})
		if err != nil {
			return err
		}
		sites[0].Test, sites[0].Registries = report, registriesOf(facts, report.Metadata)
		return c.printSites(f.output, sites)
	case f.output.Text():
		return report.Show(c.Out, f.output.Is(wideFormat))
	}
	return f.output.Print(c.Out, report)
}
