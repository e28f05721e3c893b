package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const edge = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: NS}
spec:
  networkConfig: {serverIP: 192.0.2.7/24, gateway: 192.0.2.1, networkAttachmentName: vlan100, dns: [203.0.113.53]}
  image: example.com/oooi:1
  backends:
  - {name: registry, hostname: registry.example.com, port: 5000, targetService: registry, targetNamespace: NS-demo, targetPort: 5000}
`

const registry = `
apiVersion: v1
kind: Service
metadata: {name: registry, namespace: %s}
spec: {ports: [{port: 5000}]}
`

func TestAProxyAlone(t *testing.T) {
	s := newSite(t)
	s.Setup() // the base, and an Infra beside it
	s.Apply(fmt.Sprintf(registry, s.Namespace+"-demo"))
	before := s.Everything()
	s.Infra = strings.ReplaceAll(edge, "NS", s.Namespace)
	said := s.Setup()
	for _, what := range []string{"ProxyServer NS/edge", "StatefulSet NS/edge-proxy", "Service NS/edge-proxy", "Role NS-demo/oooi-NS-edge-proxy"} {
		if what = strings.ReplaceAll(what, "NS", s.Namespace); !strings.Contains(said, what+" created\n") {
			t.Errorf("nothing is said of %s:\n%s", what, said)
		}
	}
	for line := range strings.Lines(said) {
		if !strings.Contains(line, "edge") {
			t.Errorf("what has it to do with that: %s", line)
		}
	}
	if said := s.Setup(); said != "" {
		t.Errorf("the second time it says %s", said)
	}
	_, said, code := s.Run("setup", "-f", "FILE", "--dry-run=client", "-n", s.Namespace)
	if code != 1 || !strings.Contains(said, "NetworkAttachmentDefinition "+s.Namespace+"/vlan100 does not exist") {
		t.Errorf("without the network, setup ended with %d, and said %s", code, said)
	}
	s.Infra += "---" + fmt.Sprintf(registry, s.Namespace+"-demo") + "---\n" + strings.ReplaceAll(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: NS}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
`, "NS", s.Namespace)
	out, said, code := s.Run("setup", "-f", "FILE", "--dry-run=client", "-o", "yaml", "-n", s.Namespace)
	for _, want := range []string{"- --namespace\n        - " + s.Namespace + "-demo\n", "nameservers:\n        - 203.0.113.53\n", "image: example.com/oooi:1", "port: 5000"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("setup ended with %d and said %s; there is no %q in\n%s", code, said, want, out)
		}
	}
	if strings.Contains(out, "\nkind: Infra\n") || strings.Contains(out, "hostedcluster.densityops.com/infra: edge") || strings.Contains(out, "- --infra\n") {
		t.Errorf("there is an Infra in\n%s", out)
	}
	if _, said, code := s.Run("teardown", "edge", "-n", s.Namespace, "--yes"); code != 0 {
		t.Errorf("teardown ended with %d: %s", code, said)
	}
	s.Unchanged(before)
}

func TestAProxyAloneIsRefused(t *testing.T) {
	s := newSite(t)
	s.Setup()
	good := strings.ReplaceAll(edge, "NS", s.Namespace)
	for _, tc := range []struct{ name, old, new, says string }{
		{"no prefix", "192.0.2.7/24", "192.0.2.7", `spec.networkConfig.serverIP "192.0.2.7": a prefix length is required without an Infra`},
		{"no network", "networkAttachmentName: vlan100, ", "", "spec.networkConfig.networkAttachmentName"},
		{"a gateway elsewhere", "gateway: 192.0.2.1", "gateway: 198.51.100.1", "198.51.100.1 is no address in 192.0.2.0/24"},
		{"an Infra of its name", "name: edge", "name: demo", "Infra " + s.Namespace + "/demo exists and its proxy has the name of this ProxyServer"},
		{"no such Infra", "  image:", "  infraRef: {name: other}\n  image:", "Infra other is in none of the files"},
		{"nothing to route", "  backends:\n", "  x:\n", `unknown field "spec.x"`},
	} {
		s.Infra = strings.ReplaceAll(good, tc.old, tc.new)
		t.Log(tc.name)
		s.Refused(tc.says)
	}
}

// TestWhatAProxyServerSaysStays sets up an Infra whose ProxyServer has routes of its own, from
// another file than the Infra's.
func TestWhatAProxyServerSaysStays(t *testing.T) {
	s := newSite(t)
	infra := s.Infra
	server := strings.ReplaceAll(strings.ReplaceAll(edge, "name: edge", "name: demo"), "NS", s.Namespace)
	server = strings.ReplaceAll(server, "192.0.2.7", "192.0.2.4")
	server = strings.Replace(server, "  image:", "  infraRef: {name: demo}\n  image:", 1)
	s.Apply(fmt.Sprintf(registry, s.Namespace+"-demo"))
	s.Infra = infra + "---" + server
	s.Setup()
	before := s.Everything()
	s.Infra = infra
	if said := s.Setup(); said != "" {
		t.Errorf("without the ProxyServer's file it says %s", said)
	}
	s.Infra = server
	if said := s.Setup(); said != "" {
		t.Errorf("without the Infra's file it says %s", said)
	}
	s.Unchanged(before)
	s.Infra = strings.ReplaceAll(infra, "192.0.2.4", "192.0.2.5")
	said := s.Setup()
	if changed := strings.Split(strings.TrimSpace(said), "\n"); !slices.Contains(changed, "ProxyServer "+s.Namespace+"/demo configured") || strings.Contains(said, "removed") {
		t.Errorf("with another address it says %s", said)
	}
}

// TestIgnoredFieldsAreNamed has the fields of the operator that oooi replaces, which its objects may still have.
func TestIgnoredFieldsAreNamed(t *testing.T) {
	s := newSite(t)
	alone := strings.Replace(strings.ReplaceAll(edge, "NS", s.Namespace), "  image:", "  managerImage: example.com/old:1\n  xdsPort: 18001\n  port: 8443\n  image:", 1)
	beside := strings.Replace(strings.Replace(alone, "name: edge", "name: demo", 1), "  image:", "  infraRef: {name: demo}\n  image:", 1)
	infra := strings.Replace(s.Infra, "proxy: {", "proxy: {managerImage: example.com/old:1, ", 1)
	defaults := strings.NewReplacer("xdsPort: 18001", "xdsPort: 18000", "port: 8443", "port: 443", "  managerImage: example.com/old:1\n", "").Replace(alone)
	for _, tc := range []struct {
		name, file string
		want       []string
	}{
		{"a proxy alone", alone, []string{
			"ProxyServer NS/edge: spec.managerImage is ignored", "ProxyServer NS/edge: spec.port is ignored", "ProxyServer NS/edge: spec.xdsPort is ignored",
		}},
		{"an Infra and its ProxyServer", infra + "---" + beside, []string{
			"Infra NS/demo: spec.infraComponents.proxy.managerImage is ignored",
			"ProxyServer NS/demo: spec.managerImage is ignored", "ProxyServer NS/demo: spec.port is ignored", "ProxyServer NS/demo: spec.xdsPort is ignored",
		}},
		{"the values that the operator's API defaults to", defaults, nil},
	} {
		s.Infra = tc.file
		_, said, code := s.Run("setup", "-f", "FILE", "--dry-run=server")
		if code != 0 {
			t.Errorf("%s: setup ended with %d: %s", tc.name, code, said)
		}
		if strings.Count(said, " is ignored: ") != len(tc.want) {
			t.Errorf("%s: it said %s", tc.name, said)
		}
		for _, want := range tc.want {
			if want = "Warning: " + strings.ReplaceAll(want, "NS", s.Namespace) + ": "; !strings.Contains(said, want) {
				t.Errorf("%s: there is no %q in %s", tc.name, want, said)
			}
		}
	}
}
