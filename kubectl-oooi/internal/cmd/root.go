// Package cmd implements the command line of kubectl oooi.
package cmd

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// command has the data that all commands share: the streams, and the flags that select a cluster.
type command struct {
	genericiooptions.IOStreams

	cluster  *genericclioptions.ConfigFlags
	activity string // the last argument of progress
}

// InterruptedError is the cancellation cause of the context of Main when the process receives a signal.
type InterruptedError struct{ Signal syscall.Signal }

func (i InterruptedError) Error() string { return "interrupted" }

// Code returns the exit code for the signal by the convention of shells: 128 plus its number, so 130 for SIGINT.
func (i InterruptedError) Code() int { return 128 + int(i.Signal) }

// Main runs the command line args, whose first element is the program's name, and returns the exit code: 0 for
// success, 1 for failure, the code of an InterruptedError, or a code that the command defines. If the program is
// kubectl_complete-oooi, Main completes a command line for kubectl.
func Main(ctx context.Context, args []string, streams genericiooptions.IOStreams) int {
	logTo(io.Discard, 0) // client libraries also return the errors that they log
	ctrllog.SetLogger(logr.Discard())
	streams.Out = output.Terminal(streams.Out)
	root := New(streams) //nolint:contextcheck // commands get the context of ExecuteContext
	root.SetArgs(args[1:])
	if strings.HasPrefix(filepath.Base(args[0]), "kubectl_complete-") {
		root.SetArgs(append([]string{cobra.ShellCompRequestCmd}, args[1:]...))
	}
	err := root.ExecuteContext(ctx)
	var code exitError
	switch {
	case errors.As(err, &code): // the command has printed everything
		return int(code)
	case err != nil:
		printError(streams.ErrOut, err)
		if interrupted, ok := errors.AsType[InterruptedError](context.Cause(ctx)); ok {
			return interrupted.Code()
		}
		return 1
	}
	return 0
}

// logTo writes the logs of client libraries up to a level to w, each message once.
func logTo(w io.Writer, level int) {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"v": strconv.Itoa(level), "logtostderr": "false", "one_output": "true", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(err) // klog lacks the flag
		}
	}
	klog.SetOutput(w)
}

// printError prints an error, each line with the prefix "error: ".
func printError(w io.Writer, err error) {
	for line := range strings.Lines(err.Error() + "\n") {
		_, _ = fmt.Fprint(w, "error: ", output.EscapedText(line))
	}
}

// New returns the root command with all subcommands, which read from and write to streams.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	c := &command{IOStreams: streams, cluster: genericclioptions.NewConfigFlags(true)}
	c.cluster.CacheDir = nil // commands do not cache discovery
	root := &cobra.Command{
		Use:   "kubectl-oooi",
		Short: "Deploy and diagnose DHCP, DNS and the proxy of hosted clusters on isolated VLANs",
		Long: "Deploy and diagnose the network services that the nodes of a hosted cluster (HyperShift on KubeVirt) need on an\n" +
			"isolated VLAN: DHCP, DNS, and a proxy to their control plane.",
		Example:       "  kubectl oooi setup -f infra.yaml\n  kubectl oooi status",
		SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl oooi"},
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd.Name() != "diff" {
			return err
		}
		printError(streams.ErrOut, err) // diff uses exit code 1 for differences
		return exitError(diffErrorCode)
	})
	c.cluster.AddFlags(root.PersistentFlags())
	verbosity := root.PersistentFlags().IntP("v", "v", 0, "Log level of API requests, as in kubectl: 6 logs each request, 8 also its body")
	root.PersistentPreRun = func(*cobra.Command, []string) {
		if *verbosity > 0 {
			logTo(streams.ErrOut, *verbosity)
		}
	}
	hideFlags(root.PersistentFlags(), "kubeconfig", "context", "namespace", "v", "proxy-url")
	completeFlag(root, "namespace", c.completeNames(corev1.SchemeGroupVersion.WithKind("Namespace")))
	completeFlag(root, "context", c.completeContexts())
	root.AddCommand(c.setup(), c.diff(), c.history(), c.rollback(), c.status(), c.resolve(), c.routes(), c.leases(), c.egress(), c.envoy(),
		c.doctor(), c.test(), c.teardown(), c.convert(), c.images(), c.version())
	return root
}

// hideFlags hides all flags except the named ones from the help. Hidden flags still work.
func hideFlags(flags *pflag.FlagSet, but ...string) {
	flags.VisitAll(func(f *pflag.Flag) { f.Hidden = !slices.Contains(but, f.Name) })
}

// progress prints a command's activity to standard error if this is a terminal, unless the activity was printed last.
func (c *command) progress(activity string) {
	if file, ok := c.ErrOut.(*os.File); ok && term.IsTerminal(int(file.Fd())) && activity != c.activity {
		fmt.Fprintln(c.ErrOut, activity)
	}
	c.activity = activity
}

func (c *command) warning(text string) { fmt.Fprintln(c.ErrOut, "Warning:", text) }

// namespace returns the namespace of --namespace or of the kubeconfig's context, or default without a kubeconfig.
func (c *command) namespace() string {
	if namespace, _, err := c.cluster.ToRawKubeConfigLoader().Namespace(); err == nil && namespace != "" {
		return namespace
	}
	return "default"
}
