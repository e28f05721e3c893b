package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/densityops/oooi/test/lab"
)

//go:embed objects/*/*.yaml objects/node/*/*.yaml
var objects embed.FS

// hostedAddress is the address of the hosted cluster's API server: a cluster IP of the management cluster that is a
// loopback address, so it needs no kube-proxy.
const hostedAddress = "127.96.0.77"

// clusters are the control planes of the demo.
type clusters struct{ management, hosted *lab.ControlPlane }

// startClusters starts a management cluster with the objects of two hosted clusters, and the API server and MetalLB
// of the first one.
func startClusters(ctx context.Context, dir string, isolated bool) (*clusters, error) {
	start := time.Now()
	var hostedFlags []string
	if isolated { // the proxy connects to the pod of the API server, whose address cannot be a loopback address
		hostedFlags = []string{"--bind-address=0.0.0.0"}
	}
	c := &clusters{}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		sets := []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi}
		if isolated { // DHCP needs VirtualMachineInstances
			sets = append(sets, lab.KubeVirt)
		}
		var err error
		if c.management, err = lab.Start(groupCtx, lab.Config{
			Name: "management", Dir: filepath.Join(dir, "management"), ServiceCIDR: "127.96.0.0/16,fd00:96::/108", CRDs: sets,
		}); err != nil {
			return err
		}
		return applyFolder(groupCtx, c.management, "objects/management")
	})
	group.Go(func() error {
		var err error
		if c.hosted, err = lab.Start(groupCtx, lab.Config{
			Name: "hosted", Dir: filepath.Join(dir, "hosted"), ServiceCIDR: "172.31.0.0/16",
			Address: hostedAddress, ServerNames: []string{"api.demo.lab.example.com"}, APIServerFlags: hostedFlags,
		}); err != nil {
			return err
		}
		if err := c.hosted.StartMetalLB(groupCtx, lab.MetalLBConfig{LoadBalancerClass: "metallb.io/vlan"}); err != nil {
			return err
		}
		return applyFolder(groupCtx, c.hosted, "objects/hosted")
	})
	err := group.Wait()
	if err == nil {
		err = c.connect(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.stop())
	}
	progress("started a management cluster with 2 hosted clusters, one of them with an API server and MetalLB, in %.1f s", time.Since(start).Seconds())
	return c, nil
}

// connect creates the objects that HyperShift would create in the management cluster: the Service of the hosted API
// server, and the admin kubeconfig.
func (c *clusters) connect(ctx context.Context) error {
	server, err := url.Parse(c.hosted.ServerURL())
	if err != nil {
		return fmt.Errorf("reading the hosted API server's URL: %w", err)
	}
	// Without kube-proxy, the first port must be the API server's own port, because DNS connects to it at the cluster
	// IP. The proxy uses port 6443, with the endpoints.
	err = c.management.ApplyYAML(ctx, fmt.Appendf(nil, `
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: clusters-demo}
spec: {clusterIP: %s, ports: [{name: own, port: %s}, {name: client, port: 6443}]}
`, hostedAddress, server.Port()))
	if err != nil {
		return err
	}
	return lab.HostedCluster{Namespace: "clusters", Name: "demo", BaseDomain: "lab.example.com"}.PublishKubeconfig(ctx, c.management, c.hosted)
}

func (c *clusters) stop() error {
	var err error
	for _, cp := range []*lab.ControlPlane{c.management, c.hosted} {
		if cp != nil {
			err = errors.Join(err, cp.Stop())
		}
	}
	return err
}

// applyFolder applies the embedded objects of a folder.
func applyFolder(ctx context.Context, cp *lab.ControlPlane, folder string) error {
	return fs.WalkDir(objects, folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := objects.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		if err := cp.ApplyYAML(ctx, content); err != nil {
			return fmt.Errorf("applying %s: %w", path, err)
		}
		return nil
	})
}

// progress prints a line about the progress to standard error; the transcript goes to standard output.
func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
