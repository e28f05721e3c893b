package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
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
		t.Errorf("Service early has %q before there is a pool", got)
	}
	if err := cp.StartMetalLB(t.Context(), MetalLBConfig{}); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("starting it twice: got error %v", err)
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
		t.Errorf("the address that Service fixed asks for is 192.168.50.207, it has %s", fixed)
	}
	first, last := netip.MustParseAddr("192.168.50.200"), netip.MustParseAddr("192.168.50.209")
	for _, a := range []netip.Addr{early, web} {
		if a.Less(first) || last.Less(a) {
			t.Errorf("%s is not of the pool", a)
		}
	}
	if early == web {
		t.Errorf("Services early and web both have %s", web)
	}

	// It lives through an outage of the API server.
	if err := errors.Join(cp.KillAPIServer(), cp.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	apply(loadBalancer("late", "{}", ""))
	address(t, kube, "late")

	// With a class it handles the Services of that class only.
	if err := cp.KillMetalLB(); err != nil {
		t.Fatal(err)
	}
	apply(loadBalancer("classless", "{}", "")) // before the other, as it takes one at a time
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
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if err := cp.StartMetalLB(t.Context(), MetalLBConfig{}); err == nil {
		t.Error("no error from starting it after Stop")
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
	if err := cp.dead(); err != nil {
		t.Errorf("the control plane is not what it was: %v", err)
	}
}

// The controller and its CRDs come from different places.
func TestMetalLBVersions(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	gomod, err := os.ReadFile(filepath.Join(root, programsDir, "metallb", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range pinned() {
		if m.path == metallbModule && !strings.Contains(string(gomod), m.path+" "+m.version+" ") {
			t.Errorf("the CRDs are of %s, not so the controller in test/programs/metallb/go.mod", m.version)
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

// addresses has those that the status of a Service shows.
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

// address waits for the one address of a Service.
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
