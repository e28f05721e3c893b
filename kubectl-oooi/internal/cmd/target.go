package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Kinds of what a command is about, as kubectl has them before a name.
const (
	infraTarget = "infra"
	proxyTarget = "proxyserver"
)

// target is what a command is about: NAME or KIND/NAME, as kubectl and -o name write it.
type target struct {
	kind string // empty where it is not said
	name string // empty for none
}

// targetOf reads the first argument, if there is one.
func targetOf(args []string, kinds ...string) (target, error) {
	if len(args) == 0 {
		return target{}, nil
	}
	kind, name, typed := strings.Cut(args[0], "/")
	if !typed {
		return target{name: args[0]}, nil
	}
	kind = strings.TrimSuffix(strings.ToLower(kind), "."+v1alpha1.GroupName)
	kind = strings.TrimSuffix(kind, "s")
	if !slices.Contains(kinds, kind) || name == "" {
		return target{}, fmt.Errorf("%q: want NAME or %s/NAME; --namespace selects the namespace", args[0], strings.Join(kinds, "/NAME or "))
	}
	return target{kind, name}, nil
}

// about runs a command about what its first argument names.
func about(run func(context.Context, target) error, kinds ...string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, err := targetOf(args, kinds...)
		if err != nil {
			return err
		}
		return run(cmd.Context(), t)
	}
}
