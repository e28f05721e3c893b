package serve

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

func TestReplicaReportsEnvoyState(t *testing.T) {
	management := lab.New(t, lab.Config{Name: "management", CRDs: []lab.CRDSet{lab.Oooi}})
	lab.Must(t, management.ApplyYAML(t.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: proxies}\n---\n"+proxyServer)))
	backend := lab.NewCA(t).TLSBackend(t, "127.0.21.2:0", "web.example.com")
	log := &lab.Output{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	bind := netip.MustParseAddr("127.0.21.1")
	const rate = 50
	options := envoy.Options{Bind: []netip.Addr{bind}, ConnectionRate: rate}
	s := newSourceOf(t, backend.Addr(), options, logger)
	admin := filepath.Join(filepath.Dir(s.socket), "admin.sock")
	reporter := func(pod string, kubeconfig string) *Reporter {
		return &Reporter{
			Pod: pod, Proxy: "proxies/own", At: bind, Admin: NewAdmin(admin),
			Options: options, Client: statusClient(t, kubeconfig), Store: s.store, ADS: s.server, Log: logger,
		}
	}
	unprivileged, err := management.UserKubeconfig("stranger")
	lab.Must(t, err)
	first := reporter("envoy-0", management.Kubeconfig())
	background(t,
		first.Run,
		reporter("envoy-1", management.Kubeconfig()).Run, // its Envoy never connects
		reporter("envoy-2", unprivileged).Run,
	)
	proxies := management.Client(t)
	await(t, proxies, "the replica to report without Envoy", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		r := replicas["envoy-0"]
		return len(r.Listeners) == 1 && strings.Contains(r.Listeners[0].Reason, "does not listen")
	})
	if first.Open() {
		t.Error("Open returns true without an Envoy")
	}
	config := bootstrap.Config{NodeID: "envoy-0", AdminSocket: admin, MetricsPort: 19901, ServerSocket: s.socket}
	config.ProxyServer.Namespace, config.ProxyServer.Name = "proxies", "own"
	text, err := config.YAML()
	lab.Must(t, err)
	lab.NewEnvoy(t, lab.EnvoyConfig{Bootstrap: text})

	await(t, proxies, "the replica to be ready", func(replicas map[string]v1alpha1.ReplicaStatus) bool {
		r := replicas["envoy-0"]
		return r.Version != "" && r.Acknowledged == r.Version && r.NACK == "" && time.Since(r.HeartbeatTime.Time) < HeartbeatInterval &&
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
func await(t *testing.T, c client.Client, what string, condition func(map[string]v1alpha1.ReplicaStatus) bool) {
	t.Helper()
	lab.Await(t, what, func() string {
		proxy, replicas := &v1alpha1.ProxyServer{}, map[string]v1alpha1.ReplicaStatus{}
		lab.Must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "proxies", Name: "own"}, proxy))
		for _, r := range proxy.Status.Replicas {
			replicas[r.Pod] = r
		}
		if condition(replicas) {
			return ""
		}
		return fmt.Sprintf("%+v", proxy.Status)
	})
}

func statusClient(t *testing.T, kubeconfig string) rest.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	lab.Must(t, err)
	c, err := StatusClient(config)
	lab.Must(t, err)
	return c
}
