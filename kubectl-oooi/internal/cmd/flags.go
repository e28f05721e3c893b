package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
)

// A choice is a flag with a fixed set of values.
type choice struct {
	name   string
	values []string
	value  *string
}

// addChoice adds a flag with a fixed set of values, and completes them. The command must call check before it uses
// the value.
func addChoice(cmd *cobra.Command, value *string, name, defaultValue, usage string, values ...string) choice {
	cmd.Flags().StringVar(value, name, defaultValue, usage)
	completeFlag(cmd, name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	return choice{name, values, value}
}

// check returns an error if the value is not in the set.
func (c choice) check() error {
	if slices.Contains(c.values, *c.value) {
		return nil
	}
	last := len(c.values) - 1
	return fmt.Errorf("--%s %q: want %s or %s", c.name, *c.value, strings.Join(c.values[:last], ", "), c.values[last])
}

// checkChoices returns the error of the first choice with an invalid value.
func checkChoices(list []choice) error {
	for _, c := range list {
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
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
	return documents.Expand(f.names, f.recursive) //nolint:wrapcheck // the error names the file
}

// Values of --dry-run, as in kubectl.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// addDryRun adds --dry-run; usage explains its values.
func addDryRun(cmd *cobra.Command, value *string, usage string) choice {
	return addChoice(cmd, value, "dry-run", dryRunNone, `Must be "none", "client" or "server". `+usage, dryRunNone, dryRunClient, dryRunServer)
}
