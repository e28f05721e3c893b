package cmd

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestOnlyCompleteDescriptionsArePrinted checks that setup prints the Infra that flags describe, unless a file also
// contains an Infra, or a required flag is missing.
func TestOnlyCompleteDescriptionsArePrinted(t *testing.T) {
	s := newSite(t)
	for _, tc := range []struct{ args, want string }{
		{"setup demo -f FILE", "error: flags describe Infra default/demo and the files contain Infra NS/demo; specify one of them\n"},
		{"setup demo -f FILE -n NS", "error: flags describe Infra NS/demo and the files contain Infra NS/demo; specify one of them\n"},
		{"diff demo -f FILE", "error: flags describe Infra default/demo and the files contain Infra NS/demo; specify one of them\n"},
		{"setup demo -n NS --hosted-cluster demo", "error: Infra NS/demo does not exist, and --network is required to create it: the NetworkAttachmentDefinition of the VMs (NAMESPACE/NAME)\n"},
	} {
		want := strings.ReplaceAll(tc.want, "NS", s.Namespace)
		out, stderr, _ := s.Run(strings.Fields(strings.ReplaceAll(tc.args, "NS", s.Namespace))...)
		if stderr = strings.TrimSuffix(stderr, "\n") + "\n"; out != "" || stderr != want {
			t.Errorf("%s: stdout %q, stderr %q, want %q", tc.args, out, stderr, want)
		}
	}
	_, stderr, code := s.Run("setup", "demo", "-n", s.Namespace, "--hosted-cluster", "demo", "--network", "vlan100", "--cidr", "192.0.2.0/24", "--gateway", "192.0.2.1", "--dry-run=server")
	if want := "Infra " + s.Namespace + "/demo: hosted cluster " + s.Namespace + "/demo; network " + s.Namespace + "/vlan100, 192.0.2.0/24, gateway 192.0.2.1; DHCP 192.0.2.2, DNS 192.0.2.3, proxy 192.0.2.4, VMs "; code != 0 || !strings.HasPrefix(stderr, want) {
		t.Errorf("setup exited with %d, stderr %s, want %s", code, stderr, want)
	}
}

// TestVLANWithoutRouter checks that neither VMs nor pods get a router on a VLAN that has none, and that setup deploys it.
func TestVLANWithoutRouter(t *testing.T) {
	s := newSite(t)
	describe := strings.Fields("setup demo -n " + s.Namespace + " --hosted-cluster demo --network vlan100 --cidr 192.0.2.0/24 --gateway none")
	if _, stderr, code := s.Run(append(describe, "--wait=false")...); code != 0 || !strings.Contains(stderr, "192.0.2.0/24, gateway none; DHCP 192.0.2.1, ") {
		t.Fatalf("setup exited with %d, stderr %s", code, stderr)
	}
	for _, tc := range []struct{ apiVersion, kind, name, field, word string }{
		{"v1", "ConfigMap", s.ConfigOf("demo-dhcp"), "data", "router:"},
		{"k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", s.NetworkOf("demo-proxy"), "spec", `"gateway":`},
	} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.FromAPIVersionAndKind(tc.apiVersion, tc.kind))
		if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: tc.name}, u); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(u.Object[tc.field]); strings.Contains(text, tc.word) || !strings.Contains(text, "192.0.2.3") {
			t.Errorf("%s has %s, want no %s", tc.kind, text, tc.word)
		}
	}
	if out, stderr, code := s.Run(append(describe, "--dry-run=server")...); code != 0 || strings.Contains(out, "configured") {
		t.Errorf("the second setup exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
}

// TestMissingNamespaceIsTheOnlyError runs setup for an existing Infra, with a typo in metadata.namespace or in every
// namespace of the file.
func TestMissingNamespaceIsTheOnlyError(t *testing.T) {
	s := newSite(t)
	s.Setup()
	good, typo := s.Infra, "typo-"+s.Namespace
	want := "error: namespace " + typo + " of Infra " + typo + "/demo does not exist; correct the namespace, or create it first\n"
	inTypo := strings.Replace(good, "metadata: {name: demo, namespace: ", "metadata: {name: demo, namespace: typo-", 1)
	for name, infra := range map[string]string{
		"metadata.namespace":                         inTypo,
		"metadata.namespace, and a complete network": strings.Replace(inTypo, "networkAttachmentDefinition: vlan100", "networkAttachmentDefinition: vlan100, networkAttachmentNamespace: "+s.Namespace, 1),
		"all namespaces":                             strings.ReplaceAll(good, s.Namespace, typo),
	} {
		s.Infra = infra
		if _, stderr, code := s.Run("setup", "-f", "FILE", "--wait=false"); code != 1 || strings.TrimSpace(stderr) != strings.TrimSpace(want) {
			t.Errorf("%s: setup exited with %d, stderr %q, want %q", name, code, stderr, want)
		}
	}
}
