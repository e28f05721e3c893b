//go:build e2e

// Package e2e_test tests the project's images, objects and commands on real nodes.
package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/test/lab"
)

// vlan is the bridge of the VLAN of nodes and VMs, and secondVLAN another VLAN's bridge.
const vlan, secondVLAN = "vlan50", "vlan51"

// tools are commands that the tests need in addition to a node's commands: for images and on machines.
var tools = []string{"busybox", "curl", "dig", "dhclient", "haproxy", "ldd", "openssl"}

// network has the API server's address, and those outside of the cluster.
var network = lab.Network{Ranges: []string{"192.0.2.0/24", outsideNetwork}, Prepare: prepare}

var management = lab.Shared{
	Config: lab.Config{Name: "management", Address: "192.0.2.1", ControllerManager: true, Scheduler: true, Audit: true},
}

// node is a node of the management cluster, which the tests share.
var node struct {
	sync.Once
	*lab.Node

	err error
}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	code := network.Main(m, &management)
	if node.Node != nil {
		if err := node.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code != 0 {
		os.Exit(code)
	}
}

// prepare builds the images, and everything else that cannot be downloaded later.
func prepare(ctx context.Context) error {
	if len(lab.NodeMissing(tools...)) > 0 {
		return nil // each test reports what is missing
	}
	_, metallbErr := lab.BuildMetalLB(ctx, nil)
	return errors.Join(lab.PrepareNode(ctx, nil), metallbErr, buildImages(ctx))
}

// sources tracks the sources that these tests use and do not import.
var sources = sync.OnceValue(func() error {
	return lab.TrackSources("api", "internal", "xdsd", "plugins", "corednsbuild", "coredhcpbuild", "manifests", "test/programs")
})

// cluster returns the management cluster with a node that has all images.
func cluster(t *testing.T) *lab.ControlPlane {
	t.Helper()
	lab.NeedNode(t, tools...)
	network.Need(t)
	lab.Must(t, sources())
	cp := management.Get(t)
	node.Do(func() { node.Node, node.err = startNode(t.Context(), cp) })
	if node.err != nil {
		t.Fatal(node.err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(node.Logs())
		}
	})
	return cp
}

func startNode(ctx context.Context, cp *lab.ControlPlane) (*lab.Node, error) {
	return lab.StartNode(ctx, cp, lab.NodeConfig{Bridges: []string{vlan, secondVLAN}, Images: []string{oooiImage, envoyImage, toolsImage}})
}
