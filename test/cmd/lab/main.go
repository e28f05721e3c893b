// Command lab prepares the test lab before tests run:
//
//	go run ./test/cmd/lab build       builds the binaries of the control plane, MetalLB and Multus, and downloads Envoy
//	go run ./test/cmd/lab tests       builds the programs that only tests start: oooi's daemons with the race detector, and Helm
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/densityops/oooi/test/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch strings.Join(args, " ") {
	case "build":
		return build(ctx)
	case "tests":
		_, err := lab.BuildHelm(ctx, nil)
		return errors.Join(err, lab.BuildOwn(ctx, nil))
	}
	return errors.New("usage: lab build | lab tests")
}

func build(ctx context.Context) error {
	for _, build := range []func(context.Context, lab.Logf) (string, error){lab.Build, lab.BuildMetalLB, lab.BuildMetalLBSpeaker, lab.BuildMultus, lab.InstallEnvoy} {
		path, err := build(ctx, nil)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}
