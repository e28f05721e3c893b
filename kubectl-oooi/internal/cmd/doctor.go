package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Codes to exit with, beside 0 for success and 1 for what could not be done.
const (
	foundCode        = 2
	inconclusiveCode = 3
)

// exitError ends a command that has said everything with a code of its own.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// doctorFlags are the flags of doctor.
type doctorFlags struct {
	all, list, strict bool
	only, skip        []string
	failOn            string
	save, from        string
	timeout           time.Duration
	output            *output.Flags
}

func (c *command) doctor() *cobra.Command {
	f := &doctorFlags{output: output.List()}
	cmd := &cobra.Command{
		Use:   "doctor [INFRA]",
		Short: "Find out what is wrong between the VLAN and its control plane",
		Long: "Read what there is to know about an Infra, or all of the namespace, and check it. What cannot mean anything while\n" +
			"something before it fails is not checked, so that what is shown is the root. What may not be read is never a pass.\n\n" +
			"It ends with 0 if nothing was found, 1 if it could not be made, 2 with findings, and with --strict with 3 if\n" +
			"something could not be looked at.",
		Example: "  # what is wrong?\n  kubectl oooi doctor demo\n\n  # every check\n  kubectl oooi doctor demo -o wide\n\n" +
			"  # for somebody else to look at, without Secrets\n  kubectl oooi doctor demo --save bundle.tar.gz\n  kubectl oooi doctor --from bundle.tar.gz -A",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeInfras,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.runDoctor(cmd.Context(), f, first(args)) },
	}
	flags := cmd.Flags()
	addAllNamespaces(cmd, &f.all)
	flags.BoolVar(&f.list, "list", false, "list the checks, and make none")
	flags.StringSliceVar(&f.only, "only", nil, "checks to show, by code or its beginning: OOOI-DNS")
	flags.StringSliceVar(&f.skip, "skip", nil, "checks not to show, by code or its beginning")
	flags.StringVar(&f.failOn, "fail-on", "fail", "what ends it with code 2: fail, warn or never")
	flags.BoolVar(&f.strict, "strict", false, "end with code 3 if something could not be looked at, and nothing was found")
	flags.StringVar(&f.save, "save", "", "file to save what was read to, a tar.gz without Secrets")
	flags.StringVar(&f.from, "from", "", "file that --save has written, or folder of YAML such as a must-gather, to check in place of a cluster")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "for how long reading may take")
	f.output.Add(cmd)
	return cmd
}

func (c *command) runDoctor(ctx context.Context, f *doctorFlags, name string) error {
	checks := doctor.Checks()
	if err := f.check(checks); err != nil {
		return err
	}
	if f.list {
		return c.listChecks(f, checks)
	}
	namespace, err := c.within(f.all, name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	facts, names, err := c.facts(ctx, f, checks, namespace, name)
	if err != nil {
		return err
	}
	if f.save != "" {
		if err := saveFacts(facts, f.save); err != nil {
			return err
		}
	}
	var list []*doctor.Diagnosis
	for _, infra := range names {
		if site := doctor.NewSite(facts, infra); site != nil {
			list = append(list, doctor.Diagnose(site, checks, f.selected))
		}
	}
	if len(list) == 0 {
		c.nothing(namespace)
		return nil
	}
	if err := c.printDiagnoses(f, list, name); err != nil {
		return err
	}
	return f.verdict(list)
}

// check refuses flags that mean nothing, before anything is asked for.
func (f *doctorFlags) check(checks []doctor.Check) error {
	if !slices.Contains([]string{"fail", "warn", "never"}, f.failOn) {
		return fmt.Errorf("--fail-on %q: want fail, warn or never", f.failOn)
	}
	if f.save != "" && f.from != "" {
		return errors.New("--save and --from: give one of the two")
	}
	for _, code := range slices.Concat(f.only, f.skip) {
		if !slices.ContainsFunc(checks, func(c doctor.Check) bool { return strings.HasPrefix(c.Code, strings.ToUpper(code)) }) {
			return fmt.Errorf("there is no check %s: 'kubectl oooi doctor --list' lists them", code)
		}
	}
	return f.output.Check()
}

// selected reports whether a check is to be shown.
func (f *doctorFlags) selected(code string) bool {
	begins := func(beginning string) bool { return strings.HasPrefix(code, strings.ToUpper(beginning)) }
	return (len(f.only) == 0 || slices.ContainsFunc(f.only, begins)) && !slices.ContainsFunc(f.skip, begins)
}

// facts are read from the cluster, or from what was saved.
func (c *command) facts(ctx context.Context, f *doctorFlags, checks []doctor.Check, namespace, name string) (*doctor.Facts, []string, error) {
	if f.from != "" {
		facts, err := doctor.Load(f.from, c.warning)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // it is ours
		}
		names := facts.Infras(namespace, name)
		if len(names) == 0 && name != "" {
			return nil, nil, fmt.Errorf("%s has no Infra %s/%s: -A looks in all namespaces", f.from, namespace, name)
		}
		return facts, names, nil
	}
	cl, err := c.client()
	if err != nil {
		return nil, nil, err
	}
	collector := &doctor.Collector{Client: cl, Checks: checks, Now: time.Now().UTC()}
	return collector.Collect(ctx, namespace, name) //nolint:wrapcheck // it is ours
}

func saveFacts(facts *doctor.Facts, name string) (err error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("--save: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return facts.Save(file) //nolint:wrapcheck // it is ours
}

func (c *command) listChecks(f *doctorFlags, checks []doctor.Check) error {
	t := &output.Table{Titles: []string{"CODE", "WHAT IS SO WHEN IT PASSES", "NEEDS"}}
	for _, check := range checks {
		if f.selected(check.Code) {
			t.Add(check.Code, check.Title, strings.Join(check.Needs, ","))
		}
	}
	if f.output.NoHeaders {
		t.Titles = nil
	}
	return t.Write(c.Out)
}

func (c *command) printDiagnoses(f *doctorFlags, list []*doctor.Diagnosis, name string) error {
	if f.output.Text() {
		for i, d := range list {
			if i > 0 {
				fmt.Fprintln(c.Out)
			}
			if err := d.Show(c.Out, f.output.Wide()); err != nil {
				return err //nolint:wrapcheck // it is ours
			}
		}
		return nil
	}
	var about []*unstructured.Unstructured
	for _, d := range list {
		about = append(about, output.Object(v1alpha1.SchemeGroupVersion.String(), "Infra", d.Metadata.Namespace, d.Metadata.Name))
	}
	var report any = output.ListOf("Diagnosis", list)
	if name != "" {
		report = list[0]
	}
	return f.output.Print(c.Out, report, about)
}

// verdict is the code to exit with.
func (f *doctorFlags) verdict(list []*doctor.Diagnosis) error {
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
		return exitError(foundCode)
	case open > 0 && f.strict:
		return exitError(inconclusiveCode)
	default:
		return nil
	}
}
