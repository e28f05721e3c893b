package cmd

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

// predecessor is a management cluster in which the old operator has worked: its CRDs, an Infra, and
// what it has made of that. The machines have their addresses from its DHCP server.
const predecessor = `
apiVersion: v1
kind: Namespace
metadata: {name: oooi-system}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: oooi-controller-manager, namespace: oooi-system, labels: {control-plane: controller-manager}}
spec: {selector: {matchLabels: {control-plane: controller-manager}}, replicas: 0, template: {metadata: {labels: {control-plane: controller-manager}}, spec: {containers: [{name: manager, image: registry.example.com/old/oooi}]}}}
---
apiVersion: v1
kind: Namespace
metadata: {name: clusters}
---
apiVersion: v1
kind: Namespace
metadata: {name: clusters-demo}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: clusters}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "br-vlan100"}'}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: demo-worker-0, namespace: clusters-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p}}
spec:
  networks: [{name: vlan, multus: {networkName: clusters/vlan100}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: "02:00:00:00:00:10"}]}}
status: {interfaces: [{name: vlan, mac: "02:00:00:00:00:10", ipAddress: 192.168.100.57, ipAddresses: [192.168.100.57], infoSource: "domain, guest-agent"}]}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: demo-worker-1, namespace: clusters-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p}}
spec:
  networks: [{name: vlan, multus: {networkName: clusters/vlan100}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: "02:00:00:00:00:11"}]}}
status: {interfaces: [{name: vlan, mac: "02:00:00:00:00:11", ipAddress: 192.168.100.23, ipAddresses: [192.168.100.23], infoSource: "domain, guest-agent"}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow-infrastructure, namespace: clusters-demo}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: {matchLabels: {hostedcluster.densityops.com/network-policy-group: infrastructure}}}]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: demo-dhcp-kubevirt-reader}
rules: [{apiGroups: [kubevirt.io], resources: [virtualmachineinstances], verbs: [get, list, watch]}]
`

// oldInfra is the Infra as it was applied to that cluster.
const oldInfra = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  networkConfig: {cidr: 192.168.100.0/24, gateway: 192.168.100.1, networkAttachmentDefinition: clusters/vlan100, dnsServers: [203.0.113.53]}
  infraComponents:
    dhcp: {enabled: true, serverIP: 192.168.100.2/24, rangeStart: 192.168.100.10, rangeEnd: 192.168.100.99, leaseTime: 1h, image: "registry.example.com/old/oooi:v0.3"}
    dns: {enabled: true, serverIP: 192.168.100.3, clusterName: demo, baseDomain: example.com}
    proxy: {enabled: true, serverIP: 192.168.100.4, controlPlaneNamespace: clusters-demo, managerImage: "registry.example.com/old/oooi:v0.3"}
`

// oldChildren are what the operator makes of it, each with what it makes of that in turn.
var oldChildren = []struct {
	kind, name, spec string
	owned            []string
}{
	{
		"DHCPServer", "demo-dhcp", "{networkConfig: {cidr: 192.168.100.0/24, gateway: 192.168.100.1, serverIP: 192.168.100.2/24, dnsServers: [192.168.100.3], networkAttachmentName: vlan100, networkAttachmentNamespace: clusters}, leaseConfig: {rangeStart: 192.168.100.10, rangeEnd: 192.168.100.99, leaseTime: 1h}, options: [{code: 42, value: \"192.168.100.5, 192.168.100.6\"}, {code: 66, value: tftp.example.com}, {code: 67, value: boot file}]}",
		[]string{"Deployment demo-dhcp", "ConfigMap demo-dhcp-dhcp-config", "PersistentVolumeClaim demo-dhcp-dhcp-leases", "ServiceAccount demo-dhcp-dhcp"},
	},
	{
		"DNSServer", "demo-dns", "{networkConfig: {serverIP: 192.168.100.3, proxyIP: 192.168.100.4}, hostedClusterDomain: demo.example.com, staticEntries: [{hostname: api.demo.example.com, ip: 192.168.100.4}], upstreamDNS: [203.0.113.53]}",
		[]string{"Deployment demo-dns", "ConfigMap demo-dns-dns-config", "Service demo-dns"},
	},
	{
		"ProxyServer", "demo-proxy", "{networkConfig: {serverIP: 192.168.100.4}, backends: [{name: kube-apiserver, hostname: api.demo.example.com, port: 6443, targetService: kube-apiserver, targetPort: 6443, targetNamespace: clusters-demo}]}",
		[]string{"Deployment demo-proxy", "ConfigMap demo-proxy-proxy-bootstrap", "Service demo-proxy"},
	},
}

// pod is the least that a Deployment of the operator has.
const pod = "{selector: {matchLabels: {app: %[1]s}}, replicas: 0, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: a, image: registry.example.com/old/oooi}]}}}"

// oldCRDs are those of the operator's release.
func oldCRDs() []string {
	var all []string
	for _, kind := range []string{"Infra", "DHCPServer", "DNSServer", "ProxyServer"} {
		all = append(all, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.hostedcluster.densityops.com}
spec:
  group: hostedcluster.densityops.com
  scope: Namespaced
  names: {kind: %[2]s, listKind: %[2]sList, plural: %[1]ss, singular: %[1]s}
  versions:
  - {name: v1alpha1, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, strings.ToLower(kind), kind))
	}
	return all
}

// operated is that cluster.
type operated struct {
	*cmdtest.Site
}

// newPredecessor makes it. It has an API server of its own: others have our CRDs.
func newPredecessor(t *testing.T) *operated {
	t.Helper()
	cp := lab.New(t, lab.Config{
		Name: "predecessor",
		CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt, lab.KubeVirtMachines},
	})
	s := &operated{cmdtest.On(t, cp, "clusters", Main)}
	s.Apply(predecessor)
	s.Apply(lab.HostedCluster{Namespace: "clusters", Name: "demo", BaseDomain: "example.com", More: "  infraID: demo-x7k2p"}.YAML())
	for _, crd := range oldCRDs() {
		s.create("kubectl-client-side-apply", crd)
	}
	infra := s.create("kubectl-client-side-apply", oldInfra)
	for _, child := range oldChildren {
		owner := s.create("manager", fmt.Sprintf("{apiVersion: hostedcluster.densityops.com/v1alpha1, kind: %s, metadata: {name: %s, namespace: clusters}, spec: %s}", child.kind, child.name, child.spec), infra)
		for _, o := range child.owned {
			kind, name, _ := strings.Cut(o, " ")
			text := map[string]string{
				"Deployment":            "apiVersion: apps/v1, spec: " + fmt.Sprintf(pod, child.name),
				"ConfigMap":             "apiVersion: v1, data: {a: b}",
				"Service":               "apiVersion: v1, spec: {selector: {app: " + child.name + "}, ports: [{name: old, port: 443}]}",
				"ServiceAccount":        "apiVersion: v1",
				"PersistentVolumeClaim": "apiVersion: v1, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 25Mi}}}",
			}[kind]
			s.create("manager", fmt.Sprintf("{kind: %s, metadata: {name: %s, namespace: clusters}, %s}", kind, name, text), owner)
		}
	}
	// Only now, as its garbage collector has to know the operator's kinds.
	if err := cp.StartControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// create makes an object as somebody does, owned by others. A kind whose CRD is new takes a moment.
func (s *operated) create(somebody, text string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		s.Fatal(err)
	}
	for _, o := range owners {
		u.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
		}})
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := s.Client.Create(s.Context(), u, client.FieldOwner(somebody))
		switch {
		case err == nil:
			return u
		case apierrors.IsNotFound(err) || strings.Contains(err.Error(), "no matches for kind"):
			if time.Now().Before(end) {
				continue
			}
		}
		s.Fatal(err)
	}
}

// is reports whether an object is there, and returns it.
func (s *operated) is(apiVersion, kind, name string) (*unstructured.Unstructured, bool) {
	s.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: "clusters", Name: name}, u)
	if err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
	return u, err == nil
}

// gone waits until the garbage collector has taken an object.
func (s *operated) gone(apiVersion, kind, name string) {
	s.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, there := s.is(apiVersion, kind, name); !there {
			return
		}
		if time.Now().After(end) {
			s.Fatalf("%s %s is still there", kind, name)
		}
	}
}

// documented is the block of docs/how-to/migrate.md that has a text.
func documented(t *testing.T, has string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/how-to/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], has) {
			return block[1]
		}
	}
	t.Fatalf("docs/how-to/migrate.md has no block with %s", has)
	return ""
}

// line is the line of a block that has a text.
func line(t *testing.T, block, has string) string {
	t.Helper()
	for l := range strings.Lines(block) {
		if strings.Contains(l, has) {
			return strings.TrimSpace(l)
		}
	}
	t.Fatalf("no line with %q in\n%s", has, block)
	return ""
}

// TestComingFromTheOperator goes the way of docs/how-to/migrate.md.
func TestComingFromTheOperator(t *testing.T) {
	s := newPredecessor(t)
	dir := t.TempDir()
	s.exported(dir)
	out, said, code := feed(t, "", "--kubeconfig", s.Kubeconfig, "convert", "-f", filepath.Join(dir, "old.yaml"))
	if code != 0 || strings.Count(said, "Warning: ") != strings.Count(said, "\n") || strings.Contains(out, "ProxyServer") {
		t.Fatalf("convert ended with %d, said %s and printed %s", code, said, out)
	}
	s.Infra = out
	if _, said, code := s.Run("setup", "-f", "FILE", "--wait=false"); code != 1 || !strings.Contains(said, "Deployment clusters/demo-") || !strings.Contains(said, "docs/how-to/migrate.md") {
		t.Fatalf("with the operator there setup ended with %d: %s", code, said)
	}

	// The plan, and out of it the configuration to import leases by.
	plan, said, code := s.Run("setup", "-f", "FILE", "-f", filepath.Join(dir, "cluster.yaml"), "--dry-run=client")
	if code != 0 {
		t.Fatal(said)
	}
	if err := os.WriteFile(filepath.Join(dir, "plan.yaml"), []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	leases := documented(t, "> config.yml")
	s.shell(dir, strings.ReplaceAll(line(t, leases, "> config.yml"), "/work/kubeconfig", s.Kubeconfig))

	// Its lease file is kept, what it has made is deleted.
	patch := regexp.MustCompile(`'(\[.*\])'`).FindStringSubmatch(line(t, documented(t, "patch pvc"), "patch pvc"))
	if patch == nil {
		t.Fatal("the patch of the volume is not documented")
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-dhcp-dhcp-leases"}}
	if err := s.Client.Patch(t.Context(), claim, client.RawPatch(types.JSONPatchType, []byte(patch[1]))); err != nil {
		t.Fatal(err)
	}
	if cut := line(t, documented(t, "--cascade=foreground"), "--cascade=foreground"); !strings.Contains(cut, "dhcpserver/demo-dhcp dnsserver/demo-dns proxyserver/demo-proxy") {
		t.Errorf("documented is %s", cut)
	}
	for _, child := range oldChildren {
		u, _ := s.is("hostedcluster.densityops.com/v1alpha1", child.kind, child.name)
		if err := s.Client.Delete(t.Context(), u, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []string{"apps/v1 Deployment demo-dhcp", "apps/v1 Deployment demo-dns", "apps/v1 Deployment demo-proxy", "v1 Service demo-dns", "v1 Service demo-proxy"} {
		f := strings.Fields(o)
		s.gone(f[0], f[1], f[2])
	}

	// Leases first, then the DHCP server.
	coredhcp := lab.Binary(t, "coredhcp")
	if said := s.shell(dir, coredhcp+" --config config.yml --check && cat config.yml"); !strings.Contains(said, "ntp=192.168.100.5,192.168.100.6") || !strings.Contains(said, "is valid") {
		t.Errorf("the options of the DHCPServer have become\n%s", said)
	}
	if said := s.shell(dir, coredhcp+" import --config config.yml"); !strings.Contains(said, "server4: 2 to be written, with --write, 0 there already, 0 left out") {
		t.Errorf("it would import\n%s", said)
	}
	if said := s.shell(dir, coredhcp+" import --config config.yml --write"); !strings.Contains(said, "server4: 2 written") {
		t.Errorf("it imports\n%s", said)
	}

	// The CRDs are the operator's, and their fields and those of the Infra are owned by whoever applied them.
	if _, said, code := s.Run("setup", "-f", "FILE", "--wait=false"); code != 1 || !strings.Contains(said, "CustomResourceDefinition infras.hostedcluster.densityops.com exists and was not created by setup") {
		t.Errorf("setup ended with %d: %s", code, said)
	}
	if _, said, code := s.Run("setup", "-f", "FILE", "--wait=false", "--adopt"); code != 1 || !strings.Contains(said, "--force-conflicts") {
		t.Errorf("setup ended with %d: %s", code, said)
	}
	line(t, documented(t, "import --config /work/config.yml --write"), "kubectl oooi setup -f infra.yaml --adopt --force-conflicts")
	s.Setup("--adopt", "--force-conflicts")
	if said := s.Setup(); said != "" {
		t.Errorf("the second time it says %s", said)
	}
	used, err := os.ReadFile(filepath.Join(dir, "config.yml"))
	if err != nil {
		t.Fatal(err)
	}
	config, _ := s.is("v1", "ConfigMap", "demo-dhcp")
	text, _, _ := unstructured.NestedString(config.Object, "data", "config.yml")
	if text = regexp.MustCompile(" snapshot=[^ \n]*").ReplaceAllString(text, " kubeconfig="+s.Kubeconfig); text != string(used) {
		t.Errorf("leases were imported by\n%s\nand DHCP has\n%s", used, text)
	}
	table, said, code := s.Run("leases", "demo", "-n", "clusters", "--no-headers")
	for _, has := range []string{"192.168.100.23   02:00:00:00:00:11   clusters-demo/demo-worker-1", "192.168.100.57   02:00:00:00:00:10   clusters-demo/demo-worker-0"} {
		if code != 0 || !strings.Contains(table, has) {
			t.Errorf("%d, %s: no %q in\n%s", code, said, has, table)
		}
	}

	s.goBack()
	s.Setup("--force-conflicts")

	// What is left of the operator goes, and takes nothing of ours along.
	ours := func() []string {
		return slices.DeleteFunc(s.Everything(), func(o string) bool {
			return strings.Contains(o, "dhcpservers.") || strings.Contains(o, "dnsservers.") || strings.Contains(o, "kubevirt-reader") || strings.Contains(o, "allow-infrastructure")
		})
	}
	before := ours()
	rest := documented(t, "delete crd")
	for _, has := range []string{"dhcpservers.hostedcluster.densityops.com", "dnsservers.hostedcluster.densityops.com", "demo-dhcp-kubevirt-reader", "allow-infrastructure"} {
		if !strings.Contains(rest, has) {
			t.Errorf("docs/how-to/migrate.md does not delete %s", has)
		}
	}
	for _, name := range []string{"dhcpservers", "dnsservers"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		u.SetName(name + ".hostedcluster.densityops.com")
		if err := s.Client.Delete(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	s.gone("apiextensions.k8s.io/v1", "CustomResourceDefinition", "dnsservers.hostedcluster.densityops.com")
	if after := ours(); !slices.Equal(before, after) {
		t.Errorf("there was\n%s\nthere is\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if _, ok := s.is("v1", "PersistentVolumeClaim", claim.Name); !ok {
		t.Error("the lease file of the operator is gone")
	}
}

// goBack goes the documented way back: setup's objects go, and the operator has its namespace, its CRDs and
// its Infra again.
func (s *operated) goBack() {
	s.Helper()
	way := documented(s.T, "OPERATOR_CRDS")
	teardown := strings.Fields(line(s.T, way, "teardown"))[2:]
	if _, said, code := s.Run(append(teardown, "--yes")...); code != 0 || !strings.Contains(said, "Namespace oooi-system is kept: setup did not create it") {
		s.Fatalf("%q ended with %d and said %s", teardown, code, said)
	}
	for _, o := range s.Everything() {
		if strings.Contains(o, "demo-") && !strings.Contains(o, "kubevirt-reader") || strings.Contains(o, "oooi-control ") || strings.Contains(o, "Infra ") {
			s.Errorf("teardown left %s", o)
		}
	}
	line(s.T, way, "kubectl apply --server-side --force-conflicts -f OPERATOR_CRDS")
	for _, text := range oldCRDs() {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &crd.Object); err != nil {
			s.Fatal(err)
		}
		if err := s.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(crd), client.FieldOwner("kubectl"), client.ForceOwnership); err != nil {
			s.Fatal(err)
		}
	}
	line(s.T, way, "kubectl apply -f OLD_INFRA")
	s.create("kubectl-client-side-apply", oldInfra)
	line(s.T, way, "kubectl -n OPERATOR_NAMESPACE scale deployment OPERATOR --replicas=1")
	operator := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "oooi-system", Name: "oooi-controller-manager"}}
	for _, replicas := range []int32{1, 0} { // it does not run here: it would have to be stopped again
		scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
		if err := s.Client.SubResource("scale").Update(s.Context(), operator, client.WithSubResourceBody(scale)); err != nil {
			s.Fatal(err)
		}
	}
}

// exported writes what 'kubectl get -o yaml' prints: of the operator's objects, and of what setup
// would find in the cluster.
func (s *operated) exported(dir string) {
	s.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "List"})
	for _, o := range append([]string{"Infra demo"}, "DHCPServer demo-dhcp", "DNSServer demo-dns", "ProxyServer demo-proxy") {
		kind, name, _ := strings.Cut(o, " ")
		u, ok := s.is("hostedcluster.densityops.com/v1alpha1", kind, name)
		if !ok {
			s.Fatalf("there is no %s", o)
		}
		list.Items = append(list.Items, *u)
	}
	text, err := yaml.Marshal(list.UnstructuredContent())
	if err != nil {
		s.Fatal(err)
	}
	hosted, _ := s.is("hypershift.openshift.io/v1beta1", "HostedCluster", "demo")
	network, _ := s.is("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "vlan100")
	var cluster bytes.Buffer
	for _, u := range []*unstructured.Unstructured{hosted, network} {
		one, err := yaml.Marshal(u.Object)
		if err != nil {
			s.Fatal(err)
		}
		cluster.WriteString("---\n")
		cluster.Write(one)
	}
	for name, text := range map[string][]byte{"old.yaml": text, "cluster.yaml": cluster.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			s.Fatal(err)
		}
	}
}

// shell runs a line in a folder.
func (s *operated) shell(dir, line string) string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}
