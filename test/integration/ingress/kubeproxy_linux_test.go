package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// newPod sets up the node's network with the real kube-proxy, and returns the network namespace of a client of cluster IPs.
func newPod(t *testing.T, s *site) *lab.Namespace {
	t.Helper()
	network.Need(t)
	if _, err := exec.LookPath("nft"); err != nil {
		report := t.Skipf
		if os.Getenv("CI") != "" {
			report = t.Fatalf
		}
		report("kube-proxy needs nft: %v; make deps installs it", err)
	}
	pod := lab.NewNamespace(t)
	err := lab.Cable(
		lab.End{Device: "node0", Addresses: []string{nodeIP + "/24", guestIP + "/32", strangerIP + "/32"}},
		lab.End{In: pod, Device: "eth0", Addresses: []string{podIP + "/24"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	pod.Run(t, "ip", "route", "add", "default", "via", nodeIP)
	// kube-proxy rejects connections to Services without endpoints in the forward hook, so the node needs a
	// route for them.
	(*lab.Namespace)(nil).Run(t, "ip", "route", "add", "default", "via", podIP)
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.node()
	// kube-proxy reads its address from the Node.
	node := &corev1.Node{}
	node.Name = s.namespace
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, nodeIP))
	kubeconfig, err := s.cp.UserKubeconfig("system:kube-proxy")
	if err := errors.Join(err, s.client.Status().Patch(t.Context(), node, patch)); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "kube-proxy.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, kubeProxyConfig, podNetwork, s.namespace, nodeIP, kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	assets, err := lab.FindAssets(t.Context(), t.Logf, "kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	lab.NewDaemon(t, "kube-proxy", func() *exec.Cmd { return assets.Command("kube-proxy", "--config="+config) }).Start(t)
	return pod
}

// TestAliasClientsReachTheSameGuest connects from a pod to the cluster IP of an alias through the real
// kube-proxy, while the Service behind the alias, whose endpoints the cloud controller manager writes, is
// recreated under other names.
func TestAliasClientsReachTheSameGuest(t *testing.T) {
	start(t)
	s := newSite(t)
	pod := newPod(t, s)
	lab.TCPBackend(t, guestIP+":30080", "guest")
	lab.TCPBackend(t, strangerIP+":30080", "stranger")
	s.mirrored("a-stranger", "app: other", strangerIP)
	s.mirrored("a-first", "app: web", guestIP)
	s.apply(virtualIngress("web", "backendMode: Alias"))
	alias := s.alias("web", "a-first")
	address := s.getService(alias).Spec.ClusterIP
	dial := func() (net.Conn, string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		conn, err := pod.Dial(ctx, netip.Addr{}, netip.AddrPortFrom(netip.MustParseAddr(address), 80))
		if err != nil {
			return nil, "", err
		}
		t.Cleanup(func() { _ = conn.Close() })
		name, err := lab.Greeting(ctx, conn)
		return conn, name, err
	}
	awaitGuest := func() {
		t.Helper()
		lab.Await(t, "the guest to respond", func() string {
			if _, name, err := dial(); err != nil || name != "guest" {
				return fmt.Sprintf("%q responds: %v", name, err)
			}
			return ""
		})
	}
	awaitGuest()
	endpoints := s.endpoints(alias)

	// An established connection survives.
	conn, _, err := dial()
	if err != nil {
		t.Fatal(err)
	}
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
	lab.Await(t, "connections to be refused", func() string {
		if _, name, err := dial(); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Sprintf("%q responds: %v", name, err)
		}
		return ""
	})
	s.mirrored("a-second", "app: web", guestIP)
	awaitGuest()
	checkEcho()
	if now := s.getService(alias).Spec.ClusterIP; now != address {
		t.Errorf("ClusterIP of the alias was %s, is %s", address, now)
	}
	s.awaitEndpoints(alias, endpoints...)
}
