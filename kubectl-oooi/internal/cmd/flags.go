package cmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// A choice is the value of a flag with a fixed set of values.
type choice struct {
	value  *string
	values []string
}

func (c choice) String() string { return *c.value }

func (c choice) Type() string { return "string" }

// Set returns an error if the value is not in the set.
func (c choice) Set(value string) error {
	if !slices.Contains(c.values, value) {
		return fmt.Errorf("must be one of: %s", strings.Join(c.values, ", "))
	}
	*c.value = value
	return nil
}

// addChoice adds a flag with a fixed set of values, and completes them.
func addChoice(cmd *cobra.Command, value *string, name, defaultValue, usage string, values ...string) {
	*value = defaultValue
	cmd.Flags().VarP(choice{value, values}, name, map[string]string{"output": "o"}[name], usage)
	completeFlag(cmd, name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// Values of --dry-run, as in kubectl.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// addDryRun adds --dry-run; usage explains its values.
func addDryRun(cmd *cobra.Command, value *string, usage string) {
	addChoice(cmd, value, "dry-run", dryRunNone, `Must be "none", "client" or "server". `+usage, dryRunNone, dryRunClient, dryRunServer)
}

// completeFlag registers the completion of a flag, which must exist.
func completeFlag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the caller has not added the flag
	}
}

// filenames has the values of --filename and --recursive.
type filenames struct {
	names     []string
	recursive bool
}

// addFilenames adds --filename and --recursive.
func addFilenames(cmd *cobra.Command, f *filenames, usage string) {
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.names, "filename", "f", nil, "Files, directories or URLs "+usage+"; - reads standard input")
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "Process the directories used in -f, --filename recursively")
	if err := cmd.MarkFlagFilename("filename", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag was added above
	}
}

// expand returns the names of the files, including those in directories.
func (f *filenames) expand() ([]string, error) {
	return documents.Expand(f.names, f.recursive)
}

// listFlags are the flags of a command that prints reports about the objects of a namespace.
type listFlags struct {
	all    bool
	output *output.Flags
}

// add adds --all-namespaces and the output flags.
func (f *listFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.all, "all-namespaces", "A", false, "Include the objects of all namespaces")
	f.output.Add(cmd)
}

// begin checks the output flags, and returns the namespace to list; empty for all namespaces, which excludes a name.
func (f *listFlags) begin(c *command, name string) (string, error) {
	switch {
	case f.all && name != "":
		return "", fmt.Errorf("a resource cannot be retrieved by name across all namespaces; specify the namespace of %s with --namespace", name)
	case f.all:
		return "", f.output.Check()
	default:
		return c.namespace(), f.output.Check()
	}
}

// printList prints reports of a kind in the output format. For tables, it prints the given one, or a message if it is empty.
func printList[T any](c *command, f *output.Flags, namespace, kind string, reports []*T, table *output.Table) error {
	switch {
	case !f.Text():
		return f.Print(c.Out, output.ListOf(kind, reports))
	case len(table.Rows) == 0 && namespace == "":
		fmt.Fprintln(c.ErrOut, "No resources found")
		return nil
	case len(table.Rows) == 0:
		fmt.Fprintf(c.ErrOut, "No resources found in %s namespace.\n", namespace)
		return nil
	case f.NoHeaders:
		table.Titles = nil
	}
	return table.Write(c.Out)
}

// A selection has the values of --only and --skip: names, or prefixes of names.
type selection struct{ only, skip []string }

// add adds --only and --skip. what describes the selected objects, and list returns their names.
func (s *selection) add(cmd *cobra.Command, what string, list func() []string) {
	cmd.Flags().StringSliceVar(&s.only, "only", nil, "Select only "+what)
	cmd.Flags().StringSliceVar(&s.skip, "skip", nil, "Exclude "+what)
	for _, name := range []string{"only", "skip"} {
		completeFlag(cmd, name, completeFrom(func(context.Context) []string { return list() }))
	}
}

// check returns an error if a value selects none of the names, or if no name is left.
func (s *selection) check(names []string) error {
	for _, value := range slices.Concat(s.only, s.skip) {
		if value == "" || !slices.ContainsFunc(names, func(name string) bool { return hasPrefix(name, value) }) {
			return fmt.Errorf("--only, --skip: unknown name %q; must be one of, or a prefix of: %s", value, strings.Join(names, ", "))
		}
	}
	if !slices.ContainsFunc(names, s.contains) {
		return errors.New("--only and --skip leave nothing to run")
	}
	return nil
}

// contains reports whether a name is selected.
func (s *selection) contains(name string) bool {
	matches := func(prefix string) bool { return hasPrefix(name, prefix) }
	return (len(s.only) == 0 || slices.ContainsFunc(s.only, matches)) && !slices.ContainsFunc(s.skip, matches)
}

// hasPrefix reports whether a name begins with a prefix, regardless of case.
func hasPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
}

// errTimeout rejects timeouts that are not positive.
var errTimeout = errors.New("--timeout must be greater than 0")

// withTimeout runs do with --timeout, and names the flag in the error if the time is exceeded.
func withTimeout(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := do(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("gave up after --timeout %s: %w", timeout, err)
	}
	return err
}
