package setup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/test/lab"
)

// printed returns the objects that --dry-run=client prints for the site.
func (s *site) printed() []*unstructured.Unstructured {
	s.Helper()
	infra := s.Infra
	defer func() { s.Infra = infra }()
	s.Infra += fmt.Sprintf(`---
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: %[1]s}
spec: {infraID: demo-x7k2p, dns: {baseDomain: %[1]s.example.com}, platform: {type: KubeVirt}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: %[1]s}
spec: {config: '{"cniVersion": "0.3.1", "name": "vlan100", "type": "bridge", "bridge": "%[2]s"}'}
`, s.Namespace, s.Bridge)
	out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=client")
	if code != 0 {
		s.Fatal(stderr)
	}
	var all []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(&u.Object); err != nil {
			return all
		}
		all = append(all, u)
	}
}

// sync applies objects as a GitOps tool does: CRDs and namespaces first, and with retries.
func (s *site) sync(objects []*unstructured.Unstructured) {
	s.Helper()
	first := func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition" || u.GetKind() == "Namespace"
	}
	for _, stage := range []bool{true, false} {
		for _, u := range objects {
			if first(u) != stage {
				continue
			}
			lab.Await(s, u.GetKind()+" "+u.GetName()+" to be applied", func() string {
				applied := client.ApplyConfigurationFromUnstructured(u.DeepCopy())
				if err := s.Client.Apply(s.Context(), applied, client.FieldOwner("argocd-controller"), client.ForceOwnership); err != nil {
					return err.Error()
				}
				return ""
			})
		}
	}
}

func TestTeardownDeletesGitOpsObjects(t *testing.T) {
	s := newSite(t)
	objects := s.printed()
	s.sync(objects)
	before := s.Everything()
	s.sync(objects)
	s.Unchanged(before)
	out, _, _ := s.Run("teardown", "demo", "-n", s.Namespace, "--dry-run=client")
	for _, u := range objects {
		isOwner := strings.HasPrefix(u.GetNamespace(), s.Namespace) && u.GetKind() != "Infra"
		if isOwner && !strings.Contains(out, fmt.Sprintf("%s %s/%s\n", u.GetKind(), u.GetNamespace(), u.GetName())) {
			t.Fatalf("teardown would not delete %s %s/%s:\n%s", u.GetKind(), u.GetNamespace(), u.GetName(), out)
		}
	}

	// The fields of a changed Infra are conflicts, which diff shows as differences only with --force-conflicts.
	unchanged := s.Infra
	s.Infra = strings.Replace(unchanged, "203.0.113.53", "203.0.113.54", 1)
	s.Expect(2, "diff -f FILE", "argocd-controller")
	if out, stderr, code := s.Run("diff", "-f", "FILE", "--force-conflicts"); code != 1 || !strings.Contains(out, "203.0.113.54") {
		s.Errorf("diff --force-conflicts exited with %d; stdout\n%s\nstderr\n%s", code, out, stderr)
	}
	s.Infra = unchanged

	// Setup takes over the objects without conflicts, and changes no pod.
	stderr := s.Setup()
	if strings.Contains(stderr, "created") || strings.Contains(stderr, "removed") {
		t.Errorf("setup printed\n%s", stderr)
	}
	templates := func() (all []string) {
		for _, o := range s.Everything() {
			if strings.HasPrefix(o, "StatefulSet ") {
				all = append(all, o) // contains the generation
			}
		}
		return all
	}
	if got := templates(); !slices.Equal(got, slices.DeleteFunc(slices.Clone(before), func(o string) bool { return !strings.HasPrefix(o, "StatefulSet ") })) {
		t.Errorf("setup changed StatefulSets: %s", got)
	}

	s.DeleteRecords()
	s.Expect(0, "teardown demo -n $NS --yes")
	for _, o := range s.Everything() {
		if strings.Contains(o, "demo-") && strings.Contains(o, s.Namespace) && !strings.HasPrefix(o, "Namespace ") {
			t.Errorf("teardown left %s", o)
		}
	}
}

// everyList is an Infra and its ProxyServer with all lists of their specs, without fields that have defaults.
const everyList = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: $NS}
spec:
  hostedClusterRef: {name: demo, namespace: $NS}
  networkConfig:
    cidr: 192.0.2.0/24
    additionalCIDRs: ["2001:db8:7::/64"]
    gateway: 192.0.2.1
    networkAttachmentDefinition: vlan100
    dnsServers: [203.0.113.53, 203.0.113.54]
  infraComponents:
    dhcp:
      instances: [{ip: 192.0.2.2, additionalIPs: ["2001:db8:7::2"]}, {ip: 192.0.2.12}]
      rangeStart: 192.0.2.20
      rangeEnd: 192.0.2.79
      ranges: [{start: 192.0.2.80, end: 192.0.2.99}]
      exclude: [192.0.2.30, 192.0.2.40/30]
      options: [{name: ntp-servers, value: 203.0.113.123}, {code: 252, value: "http://192.0.2.9/wpad.dat"}]
      vmSelector: {matchLabels: {tier: worker}, matchExpressions: [{key: zone, operator: NotIn, values: [far]}]}
      hosts: [{mac: "02:00:00:00:00:01", hostname: storage, address: 192.0.2.50}]
      relays: [198.51.100.0/24]
    dns:
      records: [{name: nfs.demo.example.com, type: A, values: [192.0.2.9], views: [vlan, pod]}]
      vmNames: {enabled: true, views: [vlan]}
      instances: [{ip: 192.0.2.3, additionalIPs: ["2001:db8:7::3"]}, {ip: 192.0.2.13}]
    proxy:
      serverIP: 192.0.2.4
      additionalServerIPs: ["2001:db8:7::4"]
      instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6, additionalIPs: ["2001:db8:7::6"]}]
      limits:
        ports: [{port: 6443, maxConnections: 1000}]
        perSource: {networks: [{cidr: 192.0.2.128/28, maxConnections: 9000}]}
  appsIngress: {enabled: true, source: Static, addresses: [192.0.2.220, "2001:db8:7::220"]}
  nodePlacement: {nodeSelector: {}, tolerations: [{key: dedicated, value: vlan, effect: NoSchedule}, {operator: Exists}]}
  egress: {hosts: [quay.io, "*.quay.io"], ports: [443, 80], ntp: [time.example.com], allowAddresses: [10.20.0.0/16], denyAddresses: [10.20.30.0/24]}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: $NS}
spec:
  infraRef: {name: demo}
  egress: {hosts: [registry.example.org], ports: [443], ntp: [time.example.org], allowAddresses: [10.21.0.0/16], denyAddresses: [10.21.30.0/24]}
  networkConfig: {serverIP: 192.0.2.4, dns: [203.0.113.53]}
  limits:
    ports: [{port: 6443, maxConnections: 1000}]
    perSource: {networks: [{cidr: 192.0.2.128/28, maxConnections: 9000}]}
  backends:
  - {name: registry, hostname: registry.example.com, alternateHostnames: ["*.registry.example.com"], port: 5000, targetService: registry, targetNamespace: $NS, targetPort: 5000, healthCheck: {}}
  - {name: logs, hostname: logs.example.com, port: 5514, protocol: TCP, targetSelector: {matchLabels: {app: logs}}, targetNamespace: $NS, targetPort: syslog}
  - {name: ntp, hostname: ntp.example.com, port: 123, protocol: UDP, targetService: ntp, targetNamespace: $NS, targetPort: 123}
  - name: shop
    hostname: shop.example.com
    port: 8080
    protocol: HTTP
    targetService: shop
    targetPort: 8080
    targetNamespace: $NS
    http:
      rules:
      - matches: [{path: {value: /api}, method: GET, headers: [{name: x-version, value: v2}], queryParams: [{name: page, value: "1"}]}, {path: {}}, {}]
        backendRefs: [{name: api, port: 8080}, {name: api-canary, port: 8080, weight: 10}]
        timeouts: {request: 30s}
        retry: {codes: [503]}
      - {}
  - name: secure
    hostname: "*"
    port: 8080
    protocol: HTTP
    targetNamespace: $NS
    http: {rules: [{filters: [{type: RequestRedirect, requestRedirect: {scheme: https, path: {type: ReplaceFullPath, replaceFullPath: /}}}]}]}
`

// TestGitOpsToolsFindNoDifference applies the printed objects with server-side apply, and compares them with the objects in
// the cluster by both algorithms of Argo CD: the three-way merge, which replaces lists of custom resources, and the
// structured merge by the API server's schemas.
func TestGitOpsToolsFindNoDifference(t *testing.T) {
	s := newSite(t)
	s.Infra = strings.ReplaceAll(everyList, "$NS", s.Namespace)
	objects := s.printed()
	s.sync(objects)
	discover, err := discovery.NewDiscoveryClientForConfig(s.ControlPlane.RESTConfig())
	s.Must(err)
	root := openapi3.NewRoot(discover.OpenAPIV3())
	var kinds []string
	for _, u := range objects {
		what := fmt.Sprintf("%s %s/%s", u.GetKind(), u.GetNamespace(), u.GetName())
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(u.GroupVersionKind())
		s.Must(s.Client.Get(t.Context(), client.ObjectKeyFromObject(u), live))
		if patch := threeWayPatch(t, u, live); patch != "" {
			t.Errorf("%s: the three-way merge changes %s", what, patch)
		}
		document, err := root.GVSpec(u.GroupVersionKind().GroupVersion())
		s.Must(err)
		if changes := structuredChanges(t, document.Components.Schemas, u, live); changes != "" {
			t.Errorf("%s: the structured merge changes %s", what, changes)
		}
		if u.GroupVersionKind().Group != v1alpha1.GroupName {
			continue
		}
		kinds = append(kinds, u.GetKind())
		spec := document.Components.Schemas["com.densityops.hostedcluster.v1alpha1."+u.GetKind()].Properties["spec"]
		// oooi's containers do not use dynamic resource allocation, and the nodes of an Infra's proxy are the Infra's.
		lists := slices.DeleteFunc(missingLists(&spec, u.Object["spec"], "spec"), func(path string) bool {
			return strings.HasSuffix(path, "esources.claims") || u.GetKind() == "ProxyServer" && path == "spec.nodePlacement.tolerations"
		})
		if len(lists) > 0 {
			t.Errorf("%s has no %s; add them to everyList", what, strings.Join(lists, ", "))
		}
	}
	if slices.Sort(kinds); !slices.Equal(kinds, []string{"Infra", "ProxyServer"}) {
		t.Errorf("setup printed %v", kinds)
	}
}

// threeWayPatch returns the patch by which kubectl apply and Argo CD would change an object to the printed one, if that was
// applied before, too; "" if the patch changes nothing.
func threeWayPatch(t *testing.T, printed, live *unstructured.Unstructured) string {
	t.Helper()
	encode := func(u *unstructured.Unstructured) []byte {
		data, err := u.MarshalJSON()
		lab.Must(t, err)
		return data
	}
	config, current := encode(printed), encode(live)
	if !clientgoscheme.Scheme.Recognizes(printed.GroupVersionKind()) {
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(config, config, current)
		lab.Must(t, err)
		return strings.TrimPrefix(string(patch), "{}") // this patch has only values that differ
	}
	kind, err := clientgoscheme.Scheme.New(printed.GroupVersionKind())
	lab.Must(t, err)
	meta, err := strategicpatch.NewPatchMetaFromStruct(kind)
	lab.Must(t, err)
	patch, err := strategicpatch.CreateThreeWayMergePatch(config, config, current, meta, true)
	lab.Must(t, err)
	// A field with patch strategy replace, such as the selector of a PodDisruptionBudget, is always in the patch.
	result, err := strategicpatch.StrategicMergePatchUsingLookupPatchMeta(current, patch, meta)
	lab.Must(t, err)
	patched := &unstructured.Unstructured{}
	lab.Must(t, patched.UnmarshalJSON(result))
	if equality.Semantic.DeepEqual(patched.Object, live.Object) {
		return ""
	}
	return string(patch)
}

// structuredChanges returns what merging the printed object into the one in the cluster changes; "" for nothing.
func structuredChanges(t *testing.T, schemas map[string]*spec.Schema, printed, live *unstructured.Unstructured) string {
	t.Helper()
	converter, err := managedfields.NewTypeConverter(schemas, false)
	lab.Must(t, err)
	wanted, err := converter.ObjectToTyped(printed)
	lab.Must(t, err)
	got, err := converter.ObjectToTyped(live)
	lab.Must(t, err)
	merged, err := got.Merge(wanted)
	lab.Must(t, err)
	comparison, err := got.Compare(merged)
	lab.Must(t, err)
	if comparison.IsSame() {
		return ""
	}
	return comparison.String()
}

// missingLists returns the paths of a schema's lists without an element in a value. A list in other lists is missing if no
// element of these has it.
func missingLists(s *spec.Schema, value any, path string) (missing []string) {
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		elements, _ := value.([]any)
		if len(elements) == 0 {
			return []string{path}
		}
		for i, element := range elements {
			of := missingLists(s.Items.Schema, element, path+"[]")
			if i == 0 {
				missing = of
			}
			missing = slices.DeleteFunc(missing, func(p string) bool { return !slices.Contains(of, p) })
		}
	default:
		fields, _ := value.(map[string]any)
		for name := range s.Properties {
			field := s.Properties[name]
			missing = append(missing, missingLists(&field, fields[name], path+"."+name)...)
		}
		slices.Sort(missing)
	}
	return missing
}

// TestObjectsStayWithoutTheInfra deletes an Infra without teardown. The garbage collector, which runs, must delete nothing:
// what setup deployed serves the VLAN.
func TestObjectsStayWithoutTheInfra(t *testing.T) {
	s := newSite(t)
	s.Setup()
	without := func(list []string) []string {
		return slices.DeleteFunc(list, func(o string) bool { return strings.HasPrefix(o, "Infra ") })
	}
	before := without(s.Everything())
	// The garbage collector deletes an object with an owner reference to the Infra, but no other.
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "owned"}}
	infra := s.Object(read.InfraKind, "demo")
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: infra.GetAPIVersion(), Kind: infra.GetKind(), Name: infra.GetName(), UID: infra.GetUID()}}
	s.Must(s.Client.Create(t.Context(), owned))
	s.Must(s.Client.Delete(t.Context(), infra, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	lab.Poll(t, "the garbage collector to run", func() bool {
		return apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKeyFromObject(owned), owned))
	})
	if after := without(s.Everything()); !slices.Equal(after, before) {
		t.Errorf("before:\n%s\nafter:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	vlan := &unstructured.Unstructured{}
	vlan.SetGroupVersionKind(read.AttachmentKind)
	lab.Report(t, s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "vlan100"}, vlan))
	if _, stderr, code := s.Run("status", "-n", s.Namespace); !strings.Contains(stderr, "Infra or ProxyServer "+s.Namespace+"/demo does not exist, but its "+
		"StatefulSets still run") {
		t.Errorf("status exited with %d, stderr %s", code, stderr)
	}
	s.Expect(0, "teardown demo -n $NS --yes", "Role $NS-demo/")
	err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "demo-oooi-inventory"}, &corev1.ConfigMap{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the inventory still exists: %v", err)
	}
}
