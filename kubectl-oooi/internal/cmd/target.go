package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Kinds of a target, as in KIND/NAME.
const (
	infraTarget = "infra"
	proxyTarget = "proxyserver"
)

// A target is the object that the first argument of a command names: NAME, or KIND/NAME as -o name prints it.
type target struct {
	kind string // empty for a plain NAME
	name string // empty without an argument
}

// parseTarget parses the first argument. Without arguments it returns the zero target.
func parseTarget(args []string, kinds ...string) (target, error) {
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
		return target{}, fmt.Errorf("%q: must be NAME or %s/NAME; --namespace selects the namespace", args[0], strings.Join(kinds, "/NAME or "))
	}
	return target{kind, name}, nil
}

// selects reports whether an object of a kind with this name may be the target.
func (t target) selects(kind, name string) bool {
	return t.name == "" || t.name == name && (t.kind == "" || t.kind == kind)
}

// withTarget returns a RunE function that parses the first argument, which may have one of these kinds, and calls run.
func withTarget(run func(context.Context, target) error, kinds ...string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, err := parseTarget(args, kinds...)
		if err != nil {
			return err
		}
		return run(cmd.Context(), t)
	}
}

// takesTarget adds an optional argument to a command: an Infra or, with kind proxyTarget among the kinds, a ProxyServer.
func (c *command) takesTarget(cmd *cobra.Command, run func(context.Context, target) error, kinds ...string) *cobra.Command {
	cmd.Args, cmd.ValidArgsFunction, cmd.RunE = cobra.MaximumNArgs(1), c.completeInfras, withTarget(run, kinds...)
	if slices.Contains(kinds, proxyTarget) {
		cmd.ValidArgsFunction = c.completeProxies
	}
	return cmd
}
