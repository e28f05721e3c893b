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

// The test's own network stands for a node with two guests. A pod is another network namespace, which reaches
// cluster IPs only through the node.
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

// pod is the network namespace of a client of cluster IPs.
type pod struct{ at *lab.Namespace }

// newPod sets up the node's network with the real kube-proxy, and a pod.
func newPod(t *testing.T, s *site) pod {
	t.Helper()
	network.Need(t)
	if _, err := exec.LookPath("nft"); err != nil {
		report := t.Skipf
		if os.Getenv("CI") != "" {
			report = t.Fatalf
		}
		report("kube-proxy needs nft: %v; make deps installs it", err)
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
	// kube-proxy rejects connections to Services without endpoints in the forward hook, so the node needs a
	// route for them.
	(*lab.Namespace)(nil).Run(t, "ip", "route", "add", "default", "via", podIP)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.node()
	s.startKubeProxy()
	return p
}

// startKubeProxy starts kube-proxy for the namespace's node, until the test ends.
func (s *site) startKubeProxy() {
	s.t.Helper()
	// kube-proxy reads its address from the Node.
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
	binary, err := lab.Build(s.t.Context(), s.t.Logf)
	if err != nil {
		s.t.Fatal(err)
	}
	lab.NewDaemon(s.t, "kube-proxy", func() *exec.Cmd { return lab.Component(binary, "kube-proxy", "--config="+config) }).Start(s.t)
}

// dial connects from the pod to port 80, and returns the name of the backend that responds.
func (p pod) dial(ctx context.Context, address string) (conn net.Conn, name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = p.at.Do(func() (err error) {
		// Only IPv4, because Happy Eyeballs would dial in another goroutine and thus outside of the
		// namespace.
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

// checkGuestResponds returns "" if the guest responds at an address.
func (p pod) checkGuestResponds(ctx context.Context, address string) string {
	conn, name, err := p.dial(ctx, address)
	if err != nil {
		return err.Error()
	}
	_ = conn.Close()
	if name != "guest" {
		return name + " responds"
	}
	return ""
}

// watch connects continually until stop is called, which returns the number of connections and the longest
// time without one. The test fails if a connection reaches another backend.
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
			// A connection that was started and established after the previous one is not an outage.
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
			t.Errorf("%s responded", r.stranger)
		}
		return r.connections, r.outage
	}
}

// TestAliasClientsReachTheSameGuest connects from a pod to the cluster IP of an alias through the real
// kube-proxy, while the Service behind the alias, whose endpoints the cloud controller manager writes, is
// recreated under other names.
func TestAliasClientsReachTheSameGuest(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	p := newPod(t, s)
	lab.TCPBackend(t, guestIP+":30080", "guest")
	lab.TCPBackend(t, strangerIP+":30080", "stranger")
	s.mirrored("a-stranger", "app: other", strangerIP)
	s.mirrored("a-first", "app: web", guestIP)
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", "  backendMode: Alias"))
	alias := s.alias("web", "a-first")
	address := s.getService(alias).Spec.ClusterIP
	await(t, "the guest to respond", func() string { return p.checkGuestResponds(t.Context(), address) })
	endpoints := s.endpoints(alias)

	// An established connection survives.
	conn, _, err := p.dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	checkEcho := func() {
		t.Helper()
		if err := conn.SetDeadline(time.Now().Add(lab.WaitTimeout)); err != nil {
			t.Fatal(err)
		}
		for _, step := range []func([]byte) (int, error){conn.Write, conn.Read} {
			if _, err := step([]byte("x")); err != nil {
				t.Errorf("the established connection failed: %v", err)
			}
		}
	}
	checkEcho()

	// Without a Service behind it, an alias rejects connections.
	s.removeMirrored("a-first")
	await(t, "connections to be refused", func() string {
		conn, name, err := p.dial(t.Context(), address)
		switch {
		case err == nil:
			_ = conn.Close()
			return name + " responds"
		case !errors.Is(err, syscall.ECONNREFUSED):
			return err.Error()
		default:
			return ""
		}
	})
	s.mirrored("a-second", "app: web", guestIP)
	await(t, "the guest to respond again", func() string { return p.checkGuestResponds(t.Context(), address) })
	checkEcho()

	// Measure the outage when the new Service is created immediately.
	for round := range 5 {
		before, after := fmt.Sprintf("a-round-%d", round-1), fmt.Sprintf("a-round-%d", round)
		if round == 0 {
			before = "a-second"
		}
		stop := p.watch(t, address)
		s.removeMirrored(before)
		s.mirrored(after, "app: web", guestIP)
		if current := s.alias("web", after); current != alias {
			t.Errorf("alias is %s, was %s", current, alias)
		}
		s.awaitReason("web", v1alpha1.ReasonResolved)
		await(t, "the guest to respond again", func() string { return p.checkGuestResponds(t.Context(), address) })
		connections, outage := stop()
		t.Logf("%d connections from the pod while %s replaced %s; longest time without one: %s", connections, after, before, outage.Round(time.Millisecond))
	}
	checkEcho()
	if now := s.getService(alias).Spec.ClusterIP; now != address {
		t.Errorf("ClusterIP of the alias was %s, is %s", address, now)
	}
	s.awaitEndpoints(alias, endpoints...)
}

// removeMirrored deletes the objects of mirrored.
func (s *site) removeMirrored(name string) {
	s.t.Helper()
	s.removeService(name)
	slice := &discoveryv1.EndpointSlice{}
	slice.Namespace, slice.Name = s.namespace, name+"-x"
	if err := s.client.Delete(s.t.Context(), slice); client.IgnoreNotFound(err) != nil {
		s.t.Fatal(err)
	}
}
