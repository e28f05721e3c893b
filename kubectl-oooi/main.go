// The kubectl-oooi command is the kubectl plugin 'kubectl oooi': it deploys and diagnoses the network services of
// isolated VLANs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		cancel(interrupted(<-signals))         // commands clean up and return
		os.Exit(interrupted(<-signals).Code()) // a second signal does not wait for that
	}()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := cmd.Main(ctx, os.Args, streams)
	os.Exit(code)
}

// interrupted returns the cancellation cause for a signal.
func interrupted(s os.Signal) cmd.InterruptedError {
	number, ok := s.(syscall.Signal)
	if !ok {
		number = syscall.SIGINT
	}
	return cmd.InterruptedError{Signal: number}
}
