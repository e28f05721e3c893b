package cmd

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/test/lab"
)

// managementObjects are the objects of a management cluster that do not depend on the operator's CRDs: the operator's
// Deployment without replicas, a NetworkPolicy and a ClusterRole.
//
//go:embed testdata/operator/management.yaml
var managementObjects string

// oldInfra is the Infra that was applied for the operator.
//
//go:embed testdata/operator/infra.yaml
var oldInfra string

// oldChildren are the objects that the operator creates for the Infra, with the objects that it creates for these.
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

// deploymentSpec is a minimal spec of a Deployment of the operator. The argument is its name.
const deploymentSpec = "{selector: {matchLabels: {app: %[1]s}}, replicas: 0, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: a, image: registry.example.com/old/oooi}]}}}"

// oldCRDs returns the operator's CRDs, as YAML.
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

// An operatorSite is a management cluster in which the earlier operator has created its objects.
type operatorSite struct {
	*cmdtest.Site
}

// newOperatorSite starts an API server with the operator's CRDs and objects. It does not share the API server of
// other tests, which has oooi's CRDs.
func newOperatorSite(t *testing.T) *operatorSite {
	t.Helper()
	cp := lab.New(t, lab.Config{
		Name: "operator",
		CRDs: []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.NetworkAttachmentDefinition, lab.KubeVirt, lab.KubeVirtMachines},
	})
	s := &operatorSite{cmdtest.NewEmpty(t, cp, "clusters", Main)}
	site := lab.Site{Network: "vlan100"}
	s.Apply(site.Namespaces() + site.HostedCluster().YAML() + lab.BridgeNetwork("clusters", "vlan100", "br-vlan100") + managementObjects)
	for name, vm := range map[string][2]string{"demo-worker-0": {"02:00:00:00:00:10", "192.168.100.57"}, "demo-worker-1": {"02:00:00:00:00:11", "192.168.100.23"}} {
		s.Apply(site.VirtualMachineInstance(name, vm[0], fmt.Sprintf(
			`status: {interfaces: [{name: vlan, mac: %q, ipAddress: %[2]s, ipAddresses: [%[2]s], infoSource: "domain, guest-agent"}]}`, vm[0], vm[1])))
	}
	for _, crd := range oldCRDs() {
		s.create("kubectl-client-side-apply", crd)
	}
	infra := s.create("kubectl-client-side-apply", oldInfra)
	for _, child := range oldChildren {
		owner := s.create("manager", fmt.Sprintf("{apiVersion: hostedcluster.densityops.com/v1alpha1, kind: %s, metadata: {name: %s, namespace: clusters}, spec: %s}", child.kind, child.name, child.spec), infra)
		for _, o := range child.owned {
			kind, name, _ := strings.Cut(o, " ")
			text := map[string]string{
				"Deployment":            "apiVersion: apps/v1, spec: " + fmt.Sprintf(deploymentSpec, child.name),
				"ConfigMap":             "apiVersion: v1, data: {a: b}",
				"Service":               "apiVersion: v1, spec: {selector: {app: " + child.name + "}, ports: [{name: old, port: 443}]}",
				"ServiceAccount":        "apiVersion: v1",
				"PersistentVolumeClaim": "apiVersion: v1, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 25Mi}}}",
			}[kind]
			s.create("manager", fmt.Sprintf("{kind: %s, metadata: {name: %s, namespace: clusters}, %s}", kind, name, text), owner)
		}
	}
	// The controller manager starts last, so that its garbage collector discovers the operator's kinds immediately.
	s.Must(cp.StartControllerManager(t.Context()))
	return s
}

// create creates an object with a field manager and owners. It waits until a kind whose CRD is new is served.
func (s *operatorSite) create(fieldManager, text string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	u := &unstructured.Unstructured{}
	s.Must(yaml.Unmarshal([]byte(text), &u.Object))
	for _, o := range owners {
		u.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
		}})
	}
	lab.Poll(s, "kind "+u.GetKind()+" to be served", func() bool {
		err := s.Client.Create(s.Context(), u, client.FieldOwner(fieldManager))
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			s.Fatal(err)
		}
		return err == nil
	})
	return u
}

// get returns an object of the namespace clusters, and whether it exists.
func (s *operatorSite) get(apiVersion, kind, name string) (*unstructured.Unstructured, bool) {
	s.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.FromAPIVersionAndKind(apiVersion, kind))
	err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: "clusters", Name: name}, u)
	if err != nil && !apierrors.IsNotFound(err) {
		s.Fatal(err)
	}
	return u, err == nil
}

// waitDeleted waits until the garbage collector has deleted an object.
func (s *operatorSite) waitDeleted(apiVersion, kind, name string) {
	s.Helper()
	lab.Poll(s, "the deletion of "+kind+" "+name, func() bool {
		_, exists := s.get(apiVersion, kind, name)
		return !exists
	})
}

// documentedBlock returns the first shell block of docs/how-to/migrate.md that contains a text.
func documentedBlock(t *testing.T, has string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/how-to/migrate.md")
	lab.Must(t, err)
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], has) {
			return block[1]
		}
	}
	t.Fatalf("docs/how-to/migrate.md has no block with %q", has)
	return ""
}

// lineWith returns the first line of a block that contains a text.
func lineWith(t *testing.T, block, has string) string {
	t.Helper()
	for l := range strings.Lines(block) {
		if strings.Contains(l, has) {
			return strings.TrimSpace(l)
		}
	}
	t.Fatalf("no line with %q in\n%s", has, block)
	return ""
}

// TestMigrationFromTheOperator runs the steps of docs/how-to/migrate.md.
func TestMigrationFromTheOperator(t *testing.T) {
	s := newOperatorSite(t)
	dir := t.TempDir()
	s.export(dir)
	s.Infra = strings.Replace(oldInfra, `, image: "registry.example.com/old/oooi:v0.3"`, ", options: [{name: ntp-servers, value: 192.168.100.5}]", 1)
	s.Expect(1, "setup -f FILE --wait=false", "Deployment clusters/demo-", "docs/how-to/migrate.md")

	// The plan, and the DHCP configuration in it for the import of leases.
	plan, stderr, code := s.Run("setup", "-f", "FILE", "-f", filepath.Join(dir, "cluster.yaml"), "--dry-run=client")
	if code != 0 || !strings.Contains(stderr, "spec.infraComponents.proxy.managerImage is ignored") {
		t.Fatalf("setup exited with %d: %s", code, stderr)
	}
	s.Must(os.WriteFile(filepath.Join(dir, "plan.yaml"), []byte(plan), 0o600))
	leases := documentedBlock(t, "> config.yml")
	s.shell(dir, strings.ReplaceAll(lineWith(t, leases, "> config.yml"), "/work/kubeconfig", s.Kubeconfig))

	// Keep the operator's lease volume, and delete the operator's objects.
	patch := regexp.MustCompile(`'(\[.*\])'`).FindStringSubmatch(lineWith(t, documentedBlock(t, "patch pvc"), "patch pvc"))
	if patch == nil {
		t.Fatal("the patch of the volume is not documented")
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-dhcp-dhcp-leases"}}
	s.Must(s.Client.Patch(t.Context(), claim, client.RawPatch(types.JSONPatchType, []byte(patch[1]))))
	if cut := lineWith(t, documentedBlock(t, "--cascade=foreground"), "--cascade=foreground"); !strings.Contains(cut, "dhcpserver/demo-dhcp dnsserver/demo-dns proxyserver/demo-proxy") {
		t.Errorf("docs/how-to/migrate.md deletes other objects: %s", cut)
	}
	for _, child := range oldChildren {
		u, _ := s.get("hostedcluster.densityops.com/v1alpha1", child.kind, child.name)
		s.Must(s.Client.Delete(t.Context(), u, client.PropagationPolicy(metav1.DeletePropagationForeground)))
	}
	for _, o := range []string{"apps/v1 Deployment demo-dhcp", "apps/v1 Deployment demo-dns", "apps/v1 Deployment demo-proxy", "v1 Service demo-dns", "v1 Service demo-proxy"} {
		f := strings.Fields(o)
		s.waitDeleted(f[0], f[1], f[2])
	}

	// Import the leases before setup starts the DHCP server.
	coredhcp := lab.Binary(t, "coredhcp")
	if output := s.shell(dir, coredhcp+" --config config.yml --check && cat config.yml"); !strings.Contains(output, "ntp=192.168.100.5") || !strings.Contains(output, "is valid") {
		t.Errorf("the converted configuration is\n%s", output)
	}
	if output := s.shell(dir, coredhcp+" import --config config.yml"); !strings.Contains(output, "server4: 2 new (use --write to write them), 0 existing, 0 skipped") {
		t.Errorf("coredhcp import printed\n%s", output)
	}
	if output := s.shell(dir, coredhcp+" import --config config.yml --write"); !strings.Contains(output, "server4: 2 written") {
		t.Errorf("coredhcp import --write printed\n%s", output)
	}

	// The operator installed the CRDs, and other field managers own the CRDs' fields and the Infra's.
	s.Expect(1, "setup -f FILE --wait=false", "CustomResourceDefinition infras.hostedcluster.densityops.com exists and was not created by setup")
	s.Expect(1, "setup -f FILE --wait=false --adopt", "--force-conflicts")
	lineWith(t, documentedBlock(t, "import --config /work/config.yml --write"), "kubectl oooi setup -f infra.yaml --adopt --force-conflicts")
	s.Setup("--adopt", "--force-conflicts")
	if stderr := s.Setup(); strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "managerImage is ignored") {
		t.Errorf("a second setup changes objects: %s", stderr)
	}
	used, err := os.ReadFile(filepath.Join(dir, "config.yml"))
	s.Must(err)
	config, _ := s.get("v1", "ConfigMap", s.ConfigOf("demo-dhcp"))
	text, _, _ := unstructured.NestedString(config.Object, "data", "config.yml")
	if text = regexp.MustCompile(" snapshot=[^ \n]*").ReplaceAllString(text, " kubeconfig="+s.Kubeconfig); text != string(used) {
		t.Errorf("leases were imported with the configuration\n%s\nbut DHCP has\n%s", used, text)
	}
	table, stderr, code := s.Run("leases", "demo", "-n", "clusters", "--no-headers")
	for _, has := range []string{"192.168.100.23   02:00:00:00:00:11   clusters-demo/demo-worker-1", "192.168.100.57   02:00:00:00:00:10   clusters-demo/demo-worker-0"} {
		if code != 0 || !strings.Contains(table, has) {
			t.Errorf("leases exited with %d, stderr %s; no %q in\n%s", code, stderr, has, table)
		}
	}

	// Deleting the rest of the operator's objects leaves oooi's objects unchanged.
	ourObjects := func() []string {
		return slices.DeleteFunc(s.Everything(), func(o string) bool {
			return strings.Contains(o, "dhcpservers.") || strings.Contains(o, "dnsservers.") || strings.Contains(o, "kubevirt-reader") || strings.Contains(o, "allow-infrastructure")
		})
	}
	before := ourObjects()
	rest := documentedBlock(t, "delete crd")
	for _, has := range []string{"dhcpservers.hostedcluster.densityops.com", "dnsservers.hostedcluster.densityops.com", "demo-dhcp-kubevirt-reader", "allow-infrastructure"} {
		if !strings.Contains(rest, has) {
			t.Errorf("docs/how-to/migrate.md does not delete %s", has)
		}
	}
	for _, name := range []string{"dhcpservers", "dnsservers"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		u.SetName(name + ".hostedcluster.densityops.com")
		s.Must(s.Client.Delete(t.Context(), u))
	}
	s.waitDeleted("apiextensions.k8s.io/v1", "CustomResourceDefinition", "dnsservers.hostedcluster.densityops.com")
	if after := ourObjects(); !slices.Equal(before, after) {
		t.Errorf("our objects were\n%s\nand are now\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if _, ok := s.get("v1", "PersistentVolumeClaim", claim.Name); !ok {
		t.Error("the lease volume of the operator was deleted")
	}
}

// export writes the file cluster.yaml, as 'kubectl get -o yaml' prints it: the objects that setup would read from the cluster.
func (s *operatorSite) export(dir string) {
	s.Helper()
	hosted, _ := s.get("hypershift.openshift.io/v1beta1", "HostedCluster", "demo")
	network, _ := s.get("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "vlan100")
	var cluster bytes.Buffer
	for _, u := range []*unstructured.Unstructured{hosted, network} {
		one, err := yaml.Marshal(u.Object)
		s.Must(err)
		cluster.WriteString("---\n")
		cluster.Write(one)
	}
	s.Must(os.WriteFile(filepath.Join(dir, "cluster.yaml"), cluster.Bytes(), 0o600))
}

// shell runs a command line in a directory, and returns its standard output and standard error.
func (s *operatorSite) shell(dir, line string) string {
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
