package serve

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

// hostedCluster is a HostedCluster with its Infra and ProxyServer.
const hostedCluster = `
{"apiVersion": "hypershift.openshift.io/v1beta1", "kind": "HostedCluster", "metadata": {"namespace": "clusters", "name": "%[1]s"}, "spec": {"dns": {"baseDomain": "bench.example.com"}}}
{"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "Infra", "metadata": {"namespace": "clusters", "name": "%[1]s"}, "spec": {
 "hostedClusterRef": {"name": "%[1]s"}, "networkConfig": {"cidr": "192.0.2.0/24", "gateway": "192.0.2.1", "networkAttachmentDefinition": "%[1]s"},
 "infraComponents": {"proxy": {"serverIP": "192.0.2.3"}}}}
{"apiVersion": "hostedcluster.densityops.com/v1alpha1", "kind": "ProxyServer", "metadata": {"namespace": "clusters", "name": "%[1]s"}, "spec": {
 "infraRef": {"name": "%[1]s"}, "networkConfig": {"serverIP": "192.0.2.3"}}}
`

// controlPlaneService is a Service of a control plane with one endpoint.
const controlPlaneService = `
{"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "clusters-%[1]s", "name": "%[2]s"}, "spec": {"clusterIP": "10.96.0.9", "ports": [{"name": "https", "port": %[3]d}]}}
{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"namespace": "clusters-%[1]s", "name": "%[2]s-a", "labels": {"kubernetes.io/service-name": "%[2]s"}},
 "addressType": "IPv4", "ports": [{"name": "https", "port": %[3]d, "protocol": "TCP"}], "endpoints": [{"addresses": ["10.128.0.1"]}]}
`

// BenchmarkFeeder measures the cost of a change from the model to the ADS server, in an xdsd that serves many proxies:
// a change of one proxy, reading all endpoints again, and a change of one Service's endpoints.
func BenchmarkFeeder(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		dir := b.TempDir()
		var text strings.Builder
		for i := range n {
			name := fmt.Sprintf("c%04d", i)
			fmt.Fprintf(&text, hostedCluster, name)
			for service, port := range map[string]int{"kube-apiserver": 6443, "oauth-openshift": 6443, "ignition-server-proxy": 443} {
				fmt.Fprintf(&text, controlPlaneService, name, service, port)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "all.json"), []byte(text.String()), 0o600); err != nil {
			b.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		store, err := watch.Open(watch.Config{Manifests: dir, Proxies: true, Apps: &model.AppsOptions{}}, log)
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		cancel := store.Subscribe(func() { close(done) })
		go store.Run(b.Context())
		select {
		case <-done:
			cancel()
		case <-time.After(time.Minute):
			b.Fatal("no snapshot")
		}
		server, err := ads.New(ads.Options{Log: log})
		if err != nil {
			b.Fatal(err)
		}
		f := NewFeeder(store, server, envoy.Options{}, log)
		snapshot := store.Snapshot()
		f.feed(snapshot, true)
		b.Run(fmt.Sprintf("OneProxy/clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			next := *snapshot
			next.ProxyServers = slices.Clone(snapshot.ProxyServers)
			for i := 0; b.Loop(); i++ {
				changed := *snapshot.ProxyServers[0]
				changed.AccessLog = i%2 == 0
				next.ProxyServers[0] = &changed
				f.feed(&next, false)
			}
		})
		b.Run(fmt.Sprintf("AllEndpoints/clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.feed(snapshot, true)
			}
		})
		b.Run(fmt.Sprintf("Endpoints/clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f.feedEndpoints(map[string]bool{"clusters-c0000/kube-apiserver": true})
			}
		})
	}
}
