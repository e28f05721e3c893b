package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const metallbPool = `
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata: {name: vlan50, namespace: metallb-system}
spec: {addresses: [192.168.50.200-192.168.50.209]}
`

func TestMetalLB(t *testing.T) {
	cp := New(t, Config{Name: "metallb"})
	kube := clientset(t, cp.RESTConfig())
	start := func(config MetalLBConfig) {
		t.Helper()
		started := time.Now()
		if err := cp.StartMetalLB(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		t.Logf("MetalLB ready in %s", time.Since(started).Round(time.Millisecond))
	}
	apply := func(yaml string) {
		t.Helper()
		if err := cp.ApplyYAML(t.Context(), []byte(yaml)); err != nil {
			t.Fatal(err)
		}
	}

	// Without pools there are no addresses.
	apply(loadBalancer("early", "{}", ""))
	start(MetalLBConfig{})
	if got := addresses(t, kube, "early"); len(got) != 0 {
		t.Errorf("Service early has %q without a pool", got)
	}
	if err := cp.StartMetalLB(t.Context(), MetalLBConfig{}); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("starting MetalLB twice: got error %v", err)
	}

	applied := time.Now()
	apply(metallbPool)
	early := address(t, kube, "early")
	t.Logf("first address %s after the pool", time.Since(applied).Round(time.Millisecond))
	applied = time.Now()
	apply(loadBalancer("web", "{metallb.io/address-pool: vlan50}", ""))
	web := address(t, kube, "web")
	t.Logf("next address %s after its Service", time.Since(applied).Round(time.Millisecond))
	apply(loadBalancer("fixed", "{metallb.io/loadBalancerIPs: 192.168.50.207}", ""))
	if fixed := address(t, kube, "fixed"); fixed.String() != "192.168.50.207" {
		t.Errorf("Service fixed has %s, want 192.168.50.207", fixed)
	}
	first, last := netip.MustParseAddr("192.168.50.200"), netip.MustParseAddr("192.168.50.209")
	for _, a := range []netip.Addr{early, web} {
		if a.Less(first) || last.Less(a) {
			t.Errorf("%s is not in the pool", a)
		}
	}
	if early == web {
		t.Errorf("Services early and web both have %s", web)
	}

	// The controller survives an outage of the API server.
	if err := errors.Join(cp.KillAPIServer(), cp.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	apply(loadBalancer("late", "{}", ""))
	address(t, kube, "late")

	// With a class MetalLB handles only Services of that class.
	if err := cp.KillMetalLB(); err != nil {
		t.Fatal(err)
	}
	apply(loadBalancer("classless", "{}", "")) // first, because MetalLB processes Services in sequence
	start(MetalLBConfig{LoadBalancerClass: "example.com/vlan50"})
	apply(loadBalancer("other-class", "{}", "example.com/vlan60"))
	apply(loadBalancer("class", "{metallb.io/loadBalancerIPs: 192.168.50.209}", "example.com/vlan50"))
	address(t, kube, "class")
	for _, name := range []string{"classless", "other-class"} {
		if got := addresses(t, kube, name); len(got) != 0 {
			t.Errorf("Service %s has %q", name, got)
		}
	}

	pid := cp.metallb.cmd.Process.Pid
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d still exists: %v", pid, err)
	}
	if err := cp.StartMetalLB(t.Context(), MetalLBConfig{}); err == nil {
		t.Error("no error from starting MetalLB after Stop")
	}
}

func TestMetalLBFails(t *testing.T) {
	cp := management.Get(t)
	err := cp.StartMetalLB(t.Context(), MetalLBConfig{Flags: []string{"--webhook-mode=oops"}})
	for _, want := range []string{"MetalLB on control plane management", "metallb-controller ended: exit status 1", "invalid webhookmode value", "metallb.log"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in error: %v", want, err)
		}
	}
	if err := cp.failure(); err != nil {
		t.Errorf("a failed start of MetalLB affected the control plane: %v", err)
	}
}

// TestVersionsOfPatchedPrograms checks that programs and their patched sources, or CRDs, which are pinned in different files,
// have the same version.
func TestVersionsOfPatchedPrograms(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for dir, module := range map[string]string{"metallb": metallbModule} {
		gomod, err := os.ReadFile(filepath.Join(root, programsDir, dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pinned() {
			if m.path == module && !slices.Contains(strings.Fields(string(gomod)), m.version) {
				t.Errorf("%s is pinned in version %s; require the same in test/programs/%s/go.mod", m.path, m.version, dir)
			}
		}
	}
}

func loadBalancer(name, annotations, class string) string {
	if class != "" {
		class = "loadBalancerClass: " + class
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %s, annotations: %s}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{name: http, port: 80}]
  %s
`, name, annotations, class)
}

// addresses returns the load balancer addresses in the status of a Service.
func addresses(t *testing.T, kube *kubernetes.Clientset, service string) []string {
	t.Helper()
	s, err := kube.CoreV1().Services("default").Get(t.Context(), service, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var ips []string
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		ips = append(ips, ingress.IP)
	}
	return ips
}

// address waits until a Service has exactly one load balancer address, and returns it.
func address(t *testing.T, kube *kubernetes.Clientset, service string) netip.Addr {
	t.Helper()
	var address netip.Addr
	eventually(t, func() error {
		got := addresses(t, kube, service)
		if len(got) != 1 {
			return fmt.Errorf("Service %s has %d addresses: %q", service, len(got), got)
		}
		var err error
		address, err = netip.ParseAddr(got[0])
		return err
	})
	return address
}
