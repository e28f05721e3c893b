// Command lab prepares the test lab before tests run:
//
//	go run ./test/cmd/lab build       builds the binaries of the control plane, MetalLB and Multus, and downloads Envoy
//	go run ./test/cmd/lab tests       builds the programs that only tests start: our daemons with the race detector, and Helm
//	go run ./test/cmd/lab crds DIR    writes the CRDs of other projects to DIR
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"sigs.k8s.io/yaml"

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
	switch {
	case len(args) == 1 && args[0] == "build":
		return build(ctx)
	case len(args) == 1 && args[0] == "tests":
		_, err := lab.BuildHelm(ctx, nil)
		return errors.Join(err, lab.BuildOwn(ctx, nil))
	case len(args) == 2 && args[0] == "crds":
		return writeCRDs(ctx, args[1])
	}
	return errors.New("usage: lab build | lab tests | lab crds DIR")
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

func writeCRDs(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for _, set := range lab.CRDSets() {
		if set == lab.Oooi {
			continue
		}
		crds, err := lab.CRDs(ctx, set)
		if err != nil {
			return err
		}
		for _, crd := range crds {
			data, err := yaml.Marshal(crd.Object)
			if err != nil {
				return err
			}
			path := filepath.Join(dir, crd.GetName()+".yaml")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}
