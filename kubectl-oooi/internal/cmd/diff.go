package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// Exit codes of diff, which are the same as in kubectl diff.
const (
	differencesCode = 1
	diffErrorCode   = 2 // kubectl diff uses any code above 1 for errors
)

func (c *command) diff() *cobra.Command {
	f := &setupFlags{dryRun: dryRunNone, dns: "print"}
	cmd := &cobra.Command{
		Use:   "diff (INFRA | -f infra.yaml)",
		Short: "Show what setup would change",
		Long: "Run setup's checks, and compare the objects in the cluster with the objects that setup would apply. Print the\n" +
			"differences and the pods that setup would restart or delete. The command changes nothing.\n\n" +
			"KUBECTL_EXTERNAL_DIFF selects another diff program, such as \"colordiff -N -u\". The default is \"diff -u -N\".\n\n" +
			"Exit status: 0 no differences were found, 1 differences were found, >1 an error occurred.",
		Example: "  # Show what setup would change\n  kubectl oooi diff -f infra.yaml\n\n" +
			"  # Show what another DNS address would change\n  kubectl oooi diff demo -n clusters --dns-ip 192.0.2.9",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: c.completeInfras,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := c.readArgs(cmd, f, args)
			if err == nil {
				err = c.runDiff(cmd.Context(), f)
			}
			var code exitError
			if err != nil && !errors.As(err, &code) {
				printError(c.ErrOut, err)
				return exitError(diffErrorCode)
			}
			return err
		},
	}
	addPlanFlags(cmd, f)
	return cmd
}

func (c *command) runDiff(ctx context.Context, f *setupFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	var changes []*setup.ObjectChange
	err = withTimeout(ctx, f.timeout, func(ctx context.Context) error {
		applier := f.applier(cl, c.ErrOut)
		plan, err := c.makePlan(ctx, cl, f, applier, nil)
		if err != nil {
			return err
		}
		changes, err = applier.Preview(ctx, plan)
		return err
	})
	if err != nil {
		return err
	}
	differs, err := c.showDiff(ctx, changes)
	if err != nil || !differs {
		return err
	}
	lines := append(podLines(changes), setup.Interruptions(changes)...)
	for _, line := range lines {
		if _, err := fmt.Fprintln(c.ErrOut, line); err != nil {
			return err
		}
	}
	return exitError(differencesCode)
}

// podLines returns a line with the pods that changes restart, and a line with the pods that they delete. It omits empty
// lines.
func podLines(changes []*setup.ObjectChange) []string {
	var lines []string
	for _, kind := range []struct {
		title   string
		deletes bool
	}{{"restarts ", false}, {"deletes ", true}} {
		var pods []string
		for _, change := range changes {
			for _, pod := range change.Pods {
				if (change.Verb == setup.Deleted) == kind.deletes && !slices.Contains(pods, pod) {
					pods = append(pods, pod)
				}
			}
		}
		if len(pods) > 0 {
			lines = append(lines, kind.title+strings.Join(pods, ", "))
		}
	}
	return lines
}

// showDiff writes the changed objects to two temporary directories and runs the diff program on them. It reports
// whether they differ.
func (c *command) showDiff(ctx context.Context, changes []*setup.ObjectChange) (bool, error) {
	dir, err := os.MkdirTemp("", "oooi-diff-")
	if err != nil {
		return false, fmt.Errorf("creating a temporary directory for diff: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	from, to := filepath.Join(dir, "LIVE"), filepath.Join(dir, "MERGED")
	if err := errors.Join(os.Mkdir(from, 0o700), os.Mkdir(to, 0o700)); err != nil {
		return false, fmt.Errorf("creating a temporary directory for diff: %w", err)
	}
	for _, change := range changes {
		if change.Verb == setup.Unchanged {
			continue
		}
		if err := errors.Join(writeObject(from, change.Live), writeObject(to, change.Merged)); err != nil {
			return false, err
		}
	}
	name, args := diffProgram(os.Getenv("KUBECTL_EXTERNAL_DIFF"))
	cmd := exec.CommandContext(ctx, name, append(args, from, to)...) //nolint:gosec // the user names the program, as for kubectl diff
	cmd.Stdout, cmd.Stderr = c.Out, c.ErrOut
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return false, nil
	case errors.As(err, &exit) && exit.ExitCode() == differencesCode:
		return true, nil
	default:
		return false, fmt.Errorf("running diff program %q: %w; set KUBECTL_EXTERNAL_DIFF to use another one", name, err)
	}
}

// diffProgram parses KUBECTL_EXTERNAL_DIFF as kubectl diff does: a program and its options. Options with characters
// other than letters, digits, dashes and equals signs are dropped.
func diffProgram(text string) (string, []string) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return "diff", []string{"-u", "-N"}
	}
	option := regexp.MustCompile(`^[a-zA-Z0-9-=]+$`)
	return words[0], slices.DeleteFunc(words[1:], func(word string) bool { return !option.MatchString(word) })
}

// hashSuffix is the suffix of an object's name that changes with its configuration.
var hashSuffix = regexp.MustCompile(`-[0-9a-f]{8}$`)

// writeObject writes an object to a directory. The file name depends only on the identity of the object, without a hash of its
// contents, so that the diff program pairs the object's versions. It does nothing if u is nil.
func writeObject(dir string, u *unstructured.Unstructured) error {
	if u == nil {
		return nil
	}
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		return fmt.Errorf("encoding %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	kind := u.GroupVersionKind()
	object := u.GetName()
	if kind.Kind == "ConfigMap" || kind.Kind == read.AttachmentKind.Kind {
		object = hashSuffix.ReplaceAllString(object, "")
	}
	name := strings.TrimPrefix(strings.Join([]string{kind.Group, kind.Version, kind.Kind, u.GetNamespace(), object}, "."), ".")
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		return fmt.Errorf("writing the objects to compare: %w", err)
	}
	return nil
}
