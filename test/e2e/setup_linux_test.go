//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// The hosted cluster of this test. Its control plane is servers of the test's own, with the
// names that HyperShift gives their Services.
const (
	domain  = "demo.lab.example.com"
	apiHost = "api." + domain
)

// objects are what is there before anybody sets up anything.
const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: clusters, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: clusters-demo}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan50, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50"}'}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: worker-1, namespace: clusters-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p}}
spec:
  domain:
    devices:
      interfaces: [{name: vlan, bridge: {}, macAddress: "02:00:00:00:50:71"}]
  networks: [{name: vlan, multus: {networkName: clusters/vlan50}}]
---
`

// infra is what a user writes.
const infra = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 198.18.50.0/24, gateway: 198.18.50.1, networkAttachmentDefinition: vlan50, dnsServers: [192.0.2.99]}
  infraComponents:
    dhcp: {serverIP: 198.18.50.5, rangeStart: 198.18.50.150, rangeEnd: 198.18.50.159}
    dns: {serverIP: 198.18.50.6}
    proxy: {serverIP: 198.18.50.7}
  appsIngress: {enabled: true, source: Static, addresses: [198.18.50.200]}
`

// backend publishes a server of the test's as a Service of the control plane.
func backend(name string, port int, at netip.AddrPort) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: clusters-demo}
spec: {ports: [{port: %[2]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: clusters-demo, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "", port: %[4]d, protocol: TCP}]
endpoints: [{addresses: [%[3]s], conditions: {ready: true}}]
---
`, name, port, at.Addr(), at.Port())
}

// oooi runs kubectl-oooi.
func oooi(t *testing.T, binary string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, &stdout, &stderr)
	}
	t.Logf("%s\n%s%s", strings.Join(args, " "), &stdout, &stderr)
	return stdout.String()
}

// TestSetup sets up a VLAN on the node, and boots a machine there.
func TestSetup(t *testing.T) {
	cp := cluster(t)
	if err := cp.InstallCRDs(t.Context(), lab.HyperShift, lab.OpenShiftRoute, lab.KubeVirt, lab.KubeVirtMachines); err != nil {
		t.Fatal(err)
	}
	ca := lab.NewCA(t)
	api := ca.TLSBackend(t, "192.0.2.81:6443", apiHost, "kubernetes")
	oauth := ca.TLSBackend(t, "192.0.2.82:6443", "oauth."+domain)
	ignition := ca.TLSBackend(t, "192.0.2.83:8443", "ignition."+domain)
	konnectivity := ca.TLSBackend(t, "192.0.2.84:8091", "konnectivity."+domain)
	apply(t, cp, "%s", objects+lab.HostedCluster{
		Namespace: "clusters", Name: "demo", BaseDomain: "lab.example.com", API: apiHost, More: "  infraID: demo-x7k2p",
		Publishing: map[string]string{
			"OAuthServer": lab.PublishedRoute("oauth." + domain), "Konnectivity": lab.PublishedRoute("konnectivity." + domain), "Ignition": lab.PublishedRoute("ignition." + domain),
		},
	}.YAML()+
		backend("kube-apiserver", 6443, api.Addr())+backend("oauth-openshift", 6443, oauth.Addr())+
		backend("ignition-server-proxy", 443, ignition.Addr())+backend("konnectivity-server", 8091, konnectivity.Addr()))

	dir := t.TempDir()
	file := filepath.Join(dir, "infra.yaml")
	if err := os.WriteFile(file, []byte(infra), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "kubectl-oooi")
	if err := lab.BuildBinary(t.Context(), binary, "./kubectl-oooi"); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--kubeconfig", cp.Kubeconfig()}
	setup := append(flags, "setup", "-f", file, "--image", oooiImage, "--envoy-image", envoyImage, "--timeout", "3m")
	oooi(t, binary, setup...)

	// A machine boots: an address, its name, DNS.
	vm := lab.NewMachine(t, vlan, "02:00:00:00:50:71")
	script := filepath.Join(dir, "hook")
	const hook = "#!/bin/sh\n[ \"$1\" = bound ] || exit 0\nip address add $ip/$mask dev eth0\nip route add default via $router\necho \"$ip $hostname $dns\" > %s/lease\n"
	if err := os.WriteFile(script, fmt.Appendf(nil, hook, dir), 0o700); err != nil {
		t.Fatal(err)
	}
	vm.Run(t, "busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-t", "20", "-T", "1", "-O", "hostname", "-s", script)
	lease, err := os.ReadFile(filepath.Join(dir, "lease"))
	if err != nil {
		t.Fatal(err)
	}
	address, rest, _ := strings.Cut(strings.TrimSpace(string(lease)), " ")
	if !strings.HasPrefix(address, "198.18.50.15") || rest != "worker-1 198.18.50.6" {
		t.Errorf("the machine was told %s", lease)
	}

	// Names on the VLAN, and connections by them, each to its own server.
	shop := "shop.apps." + domain
	vlanServer(t, ca, shop)
	roots := filepath.Join(dir, "ca.crt")
	if err := os.WriteFile(roots, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		port int
		want string // the address
		says string
	}{
		{apiHost, 6443, "198.18.50.7", apiHost}, {"oauth." + domain, 443, "198.18.50.7", "oauth." + domain},
		{"ignition." + domain, 443, "198.18.50.7", "ignition." + domain}, {"konnectivity." + domain, 443, "198.18.50.7", "konnectivity." + domain},
		{shop, 443, "198.18.50.200", shop},
	} {
		if got := strings.TrimSpace(vm.Run(t, "dig", "@198.18.50.6", "+short", "+time=5", c.name)); got != c.want {
			t.Errorf("%s is at %s on the VLAN, want %s", c.name, got, c.want)
			continue
		}
		if got := greeting(t, vm, roots, c.name, c.port, c.want); got != c.says {
			t.Errorf("%s:%d leads to %q", c.name, c.port, got)
		}
	}

	// The same names from a Pod, by the Services.
	proxyIP := clusterIP(t, cp, "clusters", "demo-proxy")
	for i, name := range []string{apiHost, shop} {
		got := runPod(t, cp, "clusters", fmt.Sprintf("client-%d", i), "dig", "@"+clusterIP(t, cp, "clusters", "demo-dns"), "+short", "+time=5", name)
		if strings.TrimSpace(got) != proxyIP {
			t.Errorf("a Pod is told that %s is at %s, want %s", name, got, proxyIP)
		}
	}

	// Again: nothing changes.
	if said := oooi(t, binary, append(setup, "--wait=false")...); strings.Contains(said, "configured") {
		t.Error(said)
	}
	oooi(t, binary, append(flags, "-n", "clusters", "teardown", "demo", "--yes", "--leases", "--crds")...)
}

// vlanServer is the applications' load balancer, on the VLAN.
func vlanServer(t *testing.T, ca *lab.CA, name string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "replace", "198.18.50.200/24", "dev", vlan).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "address", "del", "198.18.50.200/24", "dev", vlan).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	ca.TLSBackend(t, "198.18.50.200:443", name)
}

// greeting is what the server of a name says first, to a machine that verifies its certificate.
func greeting(t *testing.T, vm *lab.Machine, roots, name string, port int, address string) string {
	t.Helper()
	out := vm.Run(t, "sh", "-c", fmt.Sprintf("sleep 1 | timeout 20 openssl s_client -quiet -no_ign_eof -verify_return_error -CAfile %s -servername %s -verify_hostname %s -connect %s:%d 2>/dev/null", roots, name, name, address, port))
	first, _, _ := strings.Cut(out, "\n")
	return first
}
