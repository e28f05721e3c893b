package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// The network of a node: the test's own is the node, with two guests that listen there, and pod is
// another one, which reaches cluster IPs by way of the node alone.
const (
	podNetwork = "203.0.113.0/24"
	nodeIP     = "203.0.113.1"
	podIP      = "203.0.113.2"
	guestIP    = "203.0.113.11"
	strangerIP = "203.0.113.12"
)

const kubeProxyConfig = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: %s
hostnameOverride: %s
bindAddress: %s
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0}
`

// pod is where a client of cluster IPs is.
type pod struct{ at *lab.Namespace }

// newPod makes the node's network, with the real kube-proxy, and a pod.
func newPod(t *testing.T, s *site) pod {
	t.Helper()
	network.Need(t)
	if _, err := exec.LookPath("nft"); err != nil {
		say := t.Skipf
		if os.Getenv("CI") != "" {
			say = t.Fatalf
		}
		say("kube-proxy needs it: %v; make deps installs it", err)
	}
	p := pod{lab.NewNamespace(t)}
	err := lab.Cable(
		lab.End{Device: "node0", Addresses: []string{nodeIP + "/24", guestIP + "/32", strangerIP + "/32"}},
		lab.End{In: p.at, Device: "eth0", Addresses: []string{podIP + "/24"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	p.at.Run(t, "ip", "route", "add", "default", "via", nodeIP)
	// What kube-proxy refuses, it refuses on the way through to somewhere.
	(*lab.Namespace)(nil).Run(t, "ip", "route", "add", "default", "via", podIP)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.node()
	s.startKubeProxy()
	return p
}

// startKubeProxy starts it on the namespace's node, until the test ends.
func (s *site) startKubeProxy() {
	s.t.Helper()
	// It asks its Node for the address.
	node := &corev1.Node{}
	node.Name = s.namespace
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, nodeIP))
	if err := s.client.Status().Patch(s.t.Context(), node, patch); err != nil {
		s.t.Fatal(err)
	}
	kubeconfig, err := s.cp.UserKubeconfig("system:kube-proxy")
	if err != nil {
		s.t.Fatal(err)
	}
	config := filepath.Join(s.t.TempDir(), "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, podNetwork, s.namespace, nodeIP, kubeconfig), 0o600); err != nil {
		s.t.Fatal(err)
	}
	assets, err := lab.FindAssets(s.t.Context(), s.t.Logf, "kube-proxy")
	if err != nil {
		s.t.Fatal(err)
	}
	lab.NewDaemon(s.t, "kube-proxy", func() *exec.Cmd { return assets.Command("kube-proxy", "--config="+config) }).Start(s.t)
}

// dial connects from the pod, and returns who says to be there.
func (p pod) dial(ctx context.Context, address string) (conn net.Conn, name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = p.at.Do(func() (err error) {
		// Of one family: the search for the better of two would leave this thread.
		conn, err = new(net.Dialer).DialContext(ctx, "tcp4", net.JoinHostPort(address, "80"))
		return err
	})
	if err != nil {
		return nil, "", err
	}
	name, err = lab.Greeting(ctx, conn)
	if err != nil {
		return nil, "", errors.Join(err, conn.Close())
	}
	return conn, name, nil
}

// reaches is empty where the guest answers at an address.
func (p pod) reaches(ctx context.Context, address string) string {
	conn, name, err := p.dial(ctx, address)
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	if name != "guest" {
		return name + " answers"
	}
	return ""
}

// watch connects again and again, until stop returns how many connections there have been, and the
// longest time in which none came about.
func (p pod) watch(t *testing.T, address string) (stop func() (connections int, outage time.Duration)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	type result struct {
		connections int
		outage      time.Duration
		stranger    string
	}
	done := make(chan result, 1)
	go func() {
		var r result
		for last := time.Now(); ; time.Sleep(time.Millisecond) {
			began := time.Now()
			conn, name, err := p.dial(ctx, address)
			if ctx.Err() != nil {
				if err == nil {
					_ = conn.Close()
				}
				done <- r
				return
			}
			if err != nil {
				continue
			}
			_ = conn.Close()
			if name != "guest" {
				r.stranger = name
			}
			// What was begun after the last one had come about, and came about at once, is no outage.
			r.outage = max(r.outage, began.Sub(last))
			r.connections++
			last = time.Now()
		}
	}()
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended })
	return func() (int, time.Duration) {
		t.Helper()
		defer close(ended)
		cancel()
		r := <-done
		if r.stranger != "" {
			t.Errorf("%s has answered", r.stranger)
		}
		return r.connections, r.outage
	}
}

// TestClientsOfAnAliasReachTheSameGuest has a client in a pod connect to the cluster IP of an alias by
// way of the real kube-proxy, while the Service behind it, whose endpoints the cloud controller
// writes, is made anew under other names.
func TestClientsOfAnAliasReachTheSameGuest(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	p := newPod(t, s)
	lab.TCPBackend(t, guestIP+":30080", "guest")
	lab.TCPBackend(t, strangerIP+":30080", "stranger")
	s.mirrored("a-stranger", "app: other", strangerIP)
	s.mirrored("a-first", "app: web", guestIP)
	s.apply(virtualOf("web", "app: web", "number: 80", "  backendMode: Alias"))
	alias := s.alias("web", "a-first")
	address := s.getService(alias).Spec.ClusterIP
	await(t, "the guest to be reached", func() string { return p.reaches(t.Context(), address) })
	endpoints := s.endpoints(alias)

	// A connection that is there, stays.
	conn, _, err := p.dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	echoes := func() {
		t.Helper()
		if err := conn.SetDeadline(time.Now().Add(lab.Patience)); err != nil {
			t.Fatal(err)
		}
		for _, step := range []func([]byte) (int, error){conn.Write, conn.Read} {
			if _, err := step([]byte("x")); err != nil {
				t.Errorf("the connection of before is lost: %v", err)
			}
		}
	}
	echoes()

	// Without a Service behind it, an alias leads nowhere, and says so at once.
	s.unmirror("a-first")
	await(t, "connections to be refused", func() string {
		conn, name, err := p.dial(t.Context(), address)
		switch {
		case err == nil:
			_ = conn.Close()
			return name + " answers"
		case !errors.Is(err, syscall.ECONNREFUSED):
			return err.Error()
		default:
			return ""
		}
	})
	s.mirrored("a-second", "app: web", guestIP)
	await(t, "the guest to be reached again", func() string { return p.reaches(t.Context(), address) })
	echoes()

	// How long nobody gets through, when the new one comes at once.
	for round := range 5 {
		before, after := fmt.Sprintf("a-round-%d", round-1), fmt.Sprintf("a-round-%d", round)
		if round == 0 {
			before = "a-second"
		}
		stop := p.watch(t, address)
		s.unmirror(before)
		s.mirrored(after, "app: web", guestIP)
		if again := s.alias("web", after); again != alias {
			t.Errorf("the alias is %s now, and was %s", again, alias)
		}
		s.awaitReason("web", v1alpha1.ReasonResolved)
		await(t, "the guest to be reached again", func() string { return p.reaches(t.Context(), address) })
		connections, outage := stop()
		t.Logf("%d connections from the pod while %s took the place of %s; none for %s at most", connections, after, before, outage.Round(time.Millisecond))
	}
	echoes()
	if now := s.getService(alias).Spec.ClusterIP; now != address {
		t.Errorf("the alias had %s and has %s", address, now)
	}
	s.awaitEndpoints(alias, endpoints...)
}

// unmirror deletes what mirrored has made.
func (s *site) unmirror(name string) {
	s.t.Helper()
	s.removeService(name)
	slice := &discoveryv1.EndpointSlice{}
	slice.Namespace, slice.Name = s.namespace, name+"-x"
	if err := s.client.Delete(s.t.Context(), slice); client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
}
