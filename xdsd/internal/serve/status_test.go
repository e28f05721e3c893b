package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/envoy"
	"github.com/densityops/oooi/xdsd/internal/serve"
)

// proxyServer is a ProxyServer with an unprivileged port. The API server and the folder of manifests both have it.
const proxyServer = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: own, namespace: proxies}
spec:
  networkConfig: {serverIP: 192.0.2.3}
  backends:
  - {name: web, hostname: web.example.com, port: 18443, targetService: web, targetPort: https, targetNamespace: apps, protocol: TLS, healthCheck: {interval: 1s, timeout: 1s, unhealthyAfter: 1, healthyAfter: 1}}
  - {name: gone, hostname: gone.example.com, port: 18443, targetService: gone, targetPort: https, targetNamespace: apps, protocol: TLS}
`

// backendObjects are the Service and EndpointSlice of backend web. Only the folder has them: the API server rejects
// loopback addresses of endpoints.
const backendObjects = `
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: apps}
spec: {clusterIP: 10.96.2.1, ports: [{name: https, port: 443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-a, namespace: apps, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: https, port: %d, protocol: TCP}]
endpoints: [{addresses: [%s]}]
`

// startSource writes the ProxyServer of a backend at the address to a folder. It returns the store of the folder, and an
// ADS server with its listener, ads.sock in the returned folder of sockets, neither of which runs yet.
func startSource(t *testing.T, backend netip.AddrPort, log *slog.Logger) (store *watch.Store, server *ads.Server, l net.Listener, sockets string) {
	t.Helper()
	dir := t.TempDir()
	manifest := proxyServer + fmt.Sprintf(backendObjects, backend.Port(), backend.Addr())
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := watch.Open(watch.Config{Manifests: dir, Proxies: true, Apps: &model.AppsOptions{}}, log)
	if err != nil {
		t.Fatal(err)
	}
	server, err = ads.New(ads.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	sockets = lab.TempDir(t)
	l, err = ads.ListenUnix(t.Context(), filepath.Join(sockets, "ads.sock"))
	if err != nil {
		t.Fatal(err)
	}
	return store, server, l, sockets
}

func TestReplicaReportsTheStateOfItsEnvoy(t *testing.T) {
	management := lab.New(t, lab.Config{Name: "management", CRDs: []lab.CRDSet{lab.Oooi}})
	if err := management.ApplyYAML(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: proxies}\n---\n"+proxyServer)); err != nil {
		t.Fatal(err)
	}
	backend := lab.NewCA(t).TLSBackend(t, "127.0.21.2:0", "web.example.com")
	log := &lab.Output{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	store, server, l, sockets := startSource(t, backend.Addr(), logger)
	bind := netip.MustParseAddr("127.0.21.1")
	admin := filepath.Join(sockets, "admin.sock")
	const rate = 50
	options := envoy.Options{Bind: []netip.Addr{bind}, ConnectionRate: rate}
	reporter := func(pod string, kubeconfig string) *serve.Reporter {
		return &serve.Reporter{
			Pod: pod, Proxy: "proxies/own", At: bind, Admin: serve.NewAdmin(admin),
			Options: options, Client: statusClient(t, kubeconfig), Store: store, ADS: server, Log: logger,
		}
	}
	unprivileged, err := management.UserKubeconfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	first := reporter("envoy-0", management.Kubeconfig())
	background(t,
		func(ctx context.Context) { store.Run(ctx) },
		func(ctx context.Context) { _ = server.Serve(ctx, l) }, // ends with the context
		serve.NewFeeder(store, server, options, logger).Run,
		first.Run,
		reporter("envoy-1", management.Kubeconfig()).Run, // its Envoy never connects
		reporter("envoy-2", unprivileged).Run,
	)
	proxies := client(t, management.Kubeconfig())
	await(t, proxies, "the replica to report without Envoy", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		r := replicas["envoy-0"]
		return len(r.Listeners) == 1 && strings.Contains(r.Listeners[0].Reason, "does not listen")
	})
	if first.Open() {
		t.Error("Open returns true without an Envoy")
	}
	config := bootstrap.Config{NodeID: "envoy-0", AdminSocket: admin, MetricsPort: 19901, ServerSocket: filepath.Join(sockets, "ads.sock")}
	config.ProxyServer.Namespace, config.ProxyServer.Name = "proxies", "own"
	text, err := config.YAML()
	if err != nil {
		t.Fatal(err)
	}
	lab.NewEnvoy(t, lab.EnvoyConfig{Bootstrap: text})

	await(t, proxies, "the replica to be ready", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		r := replicas["envoy-0"]
		return r.Version != "" && r.Acknowledged == r.Version && r.NACK == "" && time.Since(r.HeartbeatTime.Time) < serve.HeartbeatInterval &&
			len(r.Listeners) == 1 && r.Listeners[0].Port == 18443 && r.Listeners[0].Ready &&
			healthy(r, "web") == 1 && strings.Contains(reason(r, "gone"), "Service apps/gone does not exist")
	})
	await(t, proxies, "the other replica's own entry", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		return replicas["envoy-1"].Version != "" && replicas["envoy-1"].Acknowledged == "" && replicas["envoy-0"].Acknowledged != ""
	})
	if !first.Open() {
		t.Error("Open returns false while the port accepts connections")
	}
	backend.Close()
	await(t, proxies, "the loss of the backend", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		r := replicas["envoy-0"]
		return healthy(r, "web") == 0 && reason(r, "web") == "no endpoint is healthy" &&
			len(r.Listeners) == 1 && !r.Listeners[0].Ready && strings.HasSuffix(r.Listeners[0].Reason, "for web.example.com: no endpoint is healthy")
	})
	await(t, proxies, "the failures of the backend", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		at := slices.IndexFunc(replicas["envoy-0"].Backends, func(b v1alpha1.BackendStatus) bool { return b.Name == "web" })
		b := replicas["envoy-0"].Backends[at]
		return b.FailedConnections > 0 && b.FailedHealthChecks > 0
	})
	if !first.Open() {
		t.Error("Open returns false after the backend failed")
	}
	connections(t, netip.AddrPortFrom(bind, 18443), 20*rate)
	await(t, proxies, "the reached limit", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		l := replicas["envoy-0"].Limits
		return len(l) == 1 && l[0].Name == v1alpha1.LimitConnectionRate && l[0].Port == 18443 && l[0].Value == rate && l[0].Refused > 0 &&
			l[0].Field == "limits.connectionsPerSecond" && time.Since(l[0].LastTime.Time) < time.Minute
	})
	if n := strings.Count(log.String(), "writing the proxy's status failed"); n != 1 {
		t.Errorf("the forbidden write was logged %d times, want once:\n%s", n, log)
	}
	if !strings.Contains(log.String(), `remedy="grant patch of proxyservers/status"`) {
		t.Errorf("no remedy for the forbidden write in the log:\n%s", log)
	}
}

func healthy(r v1alpha1.ReplicaStatus, name string) int32 {
	for _, b := range r.Backends {
		if b.Name == name {
			return b.Healthy
		}
	}
	return -1
}

func reason(r v1alpha1.ReplicaStatus, name string) string {
	for _, b := range r.Backends {
		if b.Name == name {
			return b.Reason
		}
	}
	return "no such backend"
}

// await reads the status until condition returns true for the replicas' entries, by pod. what describes the condition.
func await(t *testing.T, c dynamic.Interface, what string, condition func(map[string]v1alpha1.ReplicaStatus) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	for {
		u, err := c.Resource(v1alpha1.SchemeGroupVersion.WithResource("proxyservers")).Namespace("proxies").Get(ctx, "own", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(u.Object["status"])
		if err != nil {
			t.Fatal(err)
		}
		var status v1alpha1.ProxyServerStatus
		if err := json.Unmarshal(data, &status); err != nil {
			t.Fatal(err)
		}
		replicas := map[string]v1alpha1.ReplicaStatus{}
		for _, r := range status.Replicas {
			replicas[r.Pod] = r
		}
		if condition(replicas) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %s", what, data)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func statusClient(t *testing.T, kubeconfig string) rest.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := serve.StatusClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func client(t *testing.T, kubeconfig string) dynamic.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// background runs functions until the test ends.
func background(t *testing.T, functions ...func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, f := range functions {
		group.Go(func() { f(ctx) })
	}
	t.Cleanup(func() { cancel(); group.Wait() })
}
