package cmd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
)

// choice is a flag with one of a few values.
type choice struct {
	name   string
	values []string
	value  *string
}

// addChoice adds a flag with one of a few values, which are completed. Check refuses others.
func addChoice(cmd *cobra.Command, value *string, name, otherwise, usage string, values ...string) choice {
	cmd.Flags().StringVar(value, name, otherwise, usage)
	completeFlag(cmd, name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	return choice{name, values, value}
}

// check refuses a value that is none of the flag's.
func (c choice) check() error {
	if slices.Contains(c.values, *c.value) {
		return nil
	}
	last := len(c.values) - 1
	return fmt.Errorf("--%s %q: want %s or %s", c.name, *c.value, strings.Join(c.values[:last], ", "), c.values[last])
}

// checkChoices checks each.
func checkChoices(list []choice) error {
	for _, c := range list {
		if err := c.check(); err != nil {
			return err
		}
	}
	return nil
}

// completeFlag completes the values of a flag of the command.
func completeFlag(cmd *cobra.Command, name string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the flag is there
	}
}

// filenames are the flags that name files.
type filenames struct {
	names     []string
	recursive bool
}

// addFilenames adds --filename and --recursive.
func addFilenames(cmd *cobra.Command, f *filenames, usage string) {
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.names, "filename", "f", nil, "Files, directories or URLs "+usage+"; - reads standard input")
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "Process the directories of --filename recursively")
	if err := cmd.MarkFlagFilename("filename", "yaml", "yml", "json"); err != nil {
		panic(err) // the flag is there
	}
}

// expand returns the names of files, with those in folders.
func (f *filenames) expand() ([]string, error) {
	return documents.Expand(f.names, f.recursive) //nolint:wrapcheck // it names the file
}

// Values of --dry-run, as in kubectl.
const (
	dryRunNone   = "none"
	dryRunClient = "client"
	dryRunServer = "server"
)

// addDryRun adds --dry-run.
func addDryRun(cmd *cobra.Command, value *string, usage string) choice {
	return addChoice(cmd, value, "dry-run", dryRunNone, `Must be "none", "client" or "server". `+usage, dryRunNone, dryRunClient, dryRunServer)
}
