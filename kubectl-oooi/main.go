// The kubectl-oooi command sets up and looks after the network services of isolated VLANs:
// 'kubectl oooi'.
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	code := cmd.Main(ctx, os.Args, streams)
	stop()
	os.Exit(code)
}
