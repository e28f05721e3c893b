package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

var server = lab.Shared{
	Config: lab.Config{Name: "api", CRDs: []lab.CRDSet{lab.Oooi}},
}

func TestMain(m *testing.M) { lab.Main(m, &server) }

const namespace = "default"

// TestAcceptsObjectsFromEarlierOperator checks that an API server with oooi's CRDs accepts the
// objects of the earlier operator, also with strict field validation, keeps every value and only adds
// the defaults in testdata/legacy/*.defaults.
func TestAcceptsObjectsFromEarlierOperator(t *testing.T) {
	for name, written := range objects(t, "testdata/legacy/*.yaml") {
		t.Run(name, func(t *testing.T) {
			specBefore := flatten("", written.Object["spec"])
			specAfter := flatten("", createAndGet(t, written).Object["spec"])

			var got []string
			for path, value := range specAfter {
				if _, was := specBefore[path]; !was {
					got = append(got, path+"="+value)
				}
			}
			for path, value := range specBefore {
				if value == "{}" && hasFieldsBelow(specAfter, path) {
					continue // the block now has default values
				}
				if specAfter[path] != value {
					t.Errorf("%s changed from %s to %q", path, value, specAfter[path])
				}
			}
			slices.Sort(got)
			golden.Check(t, "testdata/legacy/"+name+".defaults", strings.Join(append(got, ""), "\n"))
		})
	}
}

// TestRoundTripThroughTypeKeepsSpec checks that decoding an object into its type and writing it back neither
// loses a field or an explicit false nor changes a value. Objects read from a file, which get their defaults from Go
// code, must equal those that the API server defaulted.
func TestRoundTripThroughTypeKeepsSpec(t *testing.T) {
	for name, written := range objects(t, "testdata/*/*.yaml") {
		t.Run(name, func(t *testing.T) {
			loaded := createAndGet(t, written)
			typed := newObject(t, loaded.GetKind())
			lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(loaded.Object, typed, true))
			back, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
			lab.Must(t, err)
			if diff := cmp.Diff(specOf(typed), defaultedSpec(t, written)); diff != "" {
				t.Errorf("the API server (-) and Default (+) disagree:\n%s", diff)
			}
			want := flatten("", loaded.Object["spec"])
			got := flatten("", back["spec"])
			if want["appsIngress.enabled"] == "false" {
				delete(want, "appsIngress.enabled") // omitempty drops it; the API server restores it by default
			}
			empty := 0
			for path, value := range want {
				if _, kept := got[path]; value == "" && !kept {
					delete(want, path) // an empty string is equivalent to an absent field
					empty++
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the type alters the object (-before +after):\n%s", diff)
			}

			updated := &unstructured.Unstructured{Object: back}
			updated, err = client(t, loaded.GetKind()).Update(t.Context(), updated, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			lab.Must(t, err)
			if empty == 0 && updated.GetGeneration() != loaded.GetGeneration() {
				t.Error("writing the object back incremented its generation")
			}
		})
	}
}

// TestReplicasAndControllerShareTheStatus checks that no field manager removes the fields of another one:
// every proxy replica applies its own entry of status.replicas, and the controller applies the rest of the
// status.
func TestReplicasAndControllerShareTheStatus(t *testing.T) {
	createAndGet(t, minimalObject(t, "ProxyServer", "shared-status", ""))
	apply := func(manager string, status v1alpha1.ProxyServerStatus) {
		t.Helper()
		patch := &v1alpha1.ProxyServer{Status: status}
		patch.APIVersion, patch.Kind = v1alpha1.SchemeGroupVersion.String(), "ProxyServer"
		patch.Name, patch.Namespace = "shared-status", namespace
		u := &unstructured.Unstructured{}
		convert(t, patch, u)
		if _, err := client(t, "ProxyServer").ApplyStatus(t.Context(), patch.Name, u, metav1.ApplyOptions{FieldManager: manager}); err != nil {
			t.Fatalf("%s: %v", manager, err)
		}
	}
	replica := func(pod, version string) v1alpha1.ProxyServerStatus {
		return v1alpha1.ProxyServerStatus{Replicas: []v1alpha1.ReplicaStatus{{
			Pod: pod, Version: version, Acknowledged: version,
			Listeners: []v1alpha1.ListenerStatus{{Port: 443, Ready: true}, {Port: 6443}},
			Backends:  []v1alpha1.BackendStatus{{Name: "kas", Endpoints: 2, Healthy: 1}},
		}}}
	}
	apply("proxy-0", replica("proxy-0", "1"))
	apply("proxy-1", replica("proxy-1", "1"))
	apply("control", v1alpha1.ProxyServerStatus{
		ObservedGeneration: 1,
		Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeploymentReady,
			LastTransitionTime: metav1.Now(),
		}},
		BackendCount: 1,
		Backends:     []v1alpha1.BackendStatus{{Name: "kas", Endpoints: 2, Healthy: 1}},
	})
	apply("proxy-0", replica("proxy-0", "2"))

	stored, err := client(t, "ProxyServer").Get(t.Context(), "shared-status", metav1.GetOptions{})
	lab.Must(t, err)
	proxy := &v1alpha1.ProxyServer{}
	convert(t, stored, proxy)
	versions := map[string]string{}
	for _, r := range proxy.Status.Replicas {
		versions[r.Pod] = r.Version
	}
	if want := map[string]string{"proxy-0": "2", "proxy-1": "1"}; !maps.Equal(versions, want) {
		t.Errorf("replicas have versions %v, want %v", versions, want)
	}
	if len(proxy.Status.Conditions) != 1 || proxy.Status.BackendCount != 1 || proxy.Status.ObservedGeneration != 1 {
		t.Errorf("the controller's fields are lost: %+v", proxy.Status)
	}
	if proxy.Spec.NetworkConfig.ServerIP == "" {
		t.Error("applying the status changed the spec")
	}
}

func TestInfraStatusIsStored(t *testing.T) {
	loaded := createAndGet(t, minimalObject(t, "Infra", "status", ""))
	want := v1alpha1.InfraStatus{
		ObservedGeneration: 1,
		ComponentStatus:    &v1alpha1.ComponentStatus{DNSReady: true},
		AppsIngress: &v1alpha1.AppsIngressStatus{
			Phase: v1alpha1.AppsIngressDegraded, Reason: v1alpha1.AppsIngressPoolExhausted, Message: "no address left",
			ExternalIP: "192.0.2.220", ExternalIPs: []string{"192.0.2.220", "2001:db8:7::220"},
			ServiceName: "blue-apps", ServiceNamespace: "openshift-ingress",
		},
	}
	infra := &v1alpha1.Infra{}
	convert(t, loaded, infra)
	infra.Status = want
	convert(t, infra, loaded)
	if _, err := client(t, "Infra").UpdateStatus(t.Context(), loaded, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
	stored, err := client(t, "Infra").Get(t.Context(), "status", metav1.GetOptions{})
	lab.Must(t, err)
	got := &v1alpha1.Infra{}
	convert(t, stored, got)
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("status is stored differently (-want +got):\n%s", diff)
	}
	// kubectl must print false instead of an empty column.
	if ready, found, _ := unstructured.NestedBool(stored.Object, "status", "componentStatus", "dhcpReady"); !found || ready {
		t.Errorf("dhcpReady is %v (stored: %v), want a false", ready, found)
	}
}

func TestPrinterColumns(t *testing.T) {
	spec := `
hostedClusterRef: {name: blue}
infraComponents: {dhcp: {serverIP: 192.0.2.2}, dns: {serverIP: 192.0.2.3}, proxy: {serverIP: 192.0.2.4}}
`
	createAndGet(t, minimalObject(t, "Infra", "columns", spec))
	createAndGet(t, minimalObject(t, "ProxyServer", "columns", "infraRef: {name: columns}"))
	createAndGet(t, minimalObject(t, "VirtualIngress", "columns", "ingressClassName: nginx\nrules: [{host: a.example.com}]"))
	tests := map[string]string{
		"infras":       "Name=columns HostedCluster=blue CIDR=192.0.2.0/24 DHCP=192.0.2.2 DNS=192.0.2.3 Proxy=192.0.2.4 Apps=<nil> Ready=<nil>",
		"proxyservers": "Name=columns Infra=columns ServerIP=192.0.2.4 Backends=<nil> Ready=<nil>",

		"virtualingresses": "Name=columns Class=nginx Host=a.example.com Ingress=<nil> Service=<nil> Address=<nil> Ready=<nil> Reason=<nil>",
	}
	for resource, want := range tests {
		table := getTable(t, resource, "columns")
		var cells []string
		for i, column := range table.ColumnDefinitions {
			if column.Priority == 0 && column.Name != "Age" {
				cells = append(cells, fmt.Sprintf("%s=%v", column.Name, table.Rows[0].Cells[i]))
			}
		}
		if got := strings.Join(cells, " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", resource, got, want)
		}
	}
}

func TestShortNamesAndCategory(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(server.Get(t).RESTConfig())
	lab.Must(t, err)
	resources, err := client.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	lab.Must(t, err)
	got := map[string]string{}
	for _, r := range resources.APIResources {
		if !strings.Contains(r.Name, "/") {
			got[r.Name] = fmt.Sprint(r.ShortNames, r.Categories)
		}
	}
	want := map[string]string{"infras": "[infra] [oooi]", "proxyservers": "[proxysrv] [oooi]", "virtualingresses": "[ving] [oooi]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func getTable(t *testing.T, resource, name string) *metav1.Table {
	t.Helper()
	config := rest.CopyConfig(server.Get(t).RESTConfig())
	config.GroupVersion = &v1alpha1.SchemeGroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	lab.Must(t, err)
	data, err := client.Get().Namespace(namespace).Resource(resource).Name(name).
		SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
	lab.Must(t, err)
	table := &metav1.Table{}
	lab.Must(t, json.Unmarshal(data, table))
	if len(table.Rows) != 1 {
		t.Fatalf("got %d rows", len(table.Rows))
	}
	return table
}

// objects reads the YAML files that match pattern, keyed by file name without extension.
func objects(t *testing.T, pattern string) map[string]*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(pattern)
	lab.Must(t, err)
	all := map[string]*unstructured.Unstructured{}
	for _, file := range files {
		u := &unstructured.Unstructured{}
		unmarshalYAML(t, read(t, file), &u.Object)
		u.SetNamespace(namespace)
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = u
	}
	if len(all) == 0 {
		t.Fatal("no files " + pattern)
	}
	return all
}

// minimalObject returns an object with the smallest spec that is accepted. The fields of spec, in YAML, are
// added to it or replace its own.
func minimalObject(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	least := map[string]string{
		"Infra": `
networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan-7}
`,
		"ProxyServer": `
networkConfig: {serverIP: 192.0.2.4}
backends: [{name: a, hostname: a.example.com, port: 443, targetService: a, targetPort: 443, targetNamespace: a}]
`,
		"VirtualIngress": `
defaultBackend: {service: {matchLabels: {app: a}, port: {number: 80}}}
`,
	}
	fields, replaced := map[string]any{}, map[string]any{}
	unmarshalYAML(t, []byte(least[kind]), &fields)
	unmarshalYAML(t, []byte(spec), &replaced)
	maps.Copy(fields, replaced)
	u := &unstructured.Unstructured{Object: map[string]any{}}
	convert(t, map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     fields,
	}, u)
	return u
}

// createAndGet creates an object and returns what the API server stored. The object is deleted when the test
// ends.
func createAndGet(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	c := client(t, u.GetKind())
	_, err := c.Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	lab.Must(t, err)
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
	loaded, err := c.Get(t.Context(), u.GetName(), metav1.GetOptions{})
	lab.Must(t, err)
	return loaded
}

// client returns a client for the objects of a kind in the test's namespace.
func client(t *testing.T, kind string) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(server.Get(t).RESTConfig())
	lab.Must(t, err)
	plural := map[string]string{"Infra": "infras", "ProxyServer": "proxyservers", "VirtualIngress": "virtualingresses"}[kind]
	return c.Resource(v1alpha1.SchemeGroupVersion.WithResource(plural)).Namespace(namespace)
}

// defaultedSpec returns the spec of a written object with the defaults of Go code.
func defaultedSpec(t *testing.T, written *unstructured.Unstructured) any {
	t.Helper()
	object := newObject(t, written.GetKind())
	convert(t, written, object)
	switch object := object.(type) {
	case *v1alpha1.Infra:
		object.Default()
	case *v1alpha1.ProxyServer:
		object.Default()
	}
	return specOf(object)
}

func specOf(object runtime.Object) any {
	return reflect.ValueOf(object).Elem().FieldByName("Spec").Interface()
}

func newObject(t *testing.T, kind string) runtime.Object {
	t.Helper()
	scheme := runtime.NewScheme()
	lab.Must(t, v1alpha1.AddToScheme(scheme))
	object, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
	lab.Must(t, err)
	return object
}

// convert copies an object into another Go type by encoding it as JSON.
func convert(t *testing.T, from, to any) {
	t.Helper()
	data, err := json.Marshal(from)
	lab.Must(t, err)
	lab.Must(t, json.Unmarshal(data, to))
}

func unmarshalYAML(t *testing.T, data []byte, to any) {
	t.Helper()
	lab.Must(t, yaml.UnmarshalStrict(data, to))
}

// hasFieldsBelow reports whether any flattened path lies below path.
func hasFieldsBelow(fields map[string]string, path string) bool {
	for field := range fields {
		if strings.HasPrefix(field, path+".") {
			return true
		}
	}
	return false
}

// flatten returns the values below value, keyed by their dotted paths, which begin with path. Empty maps and
// lists count as values.
func flatten(path string, value any) map[string]string {
	all := map[string]string{}
	add := func(key string, child any) {
		maps.Copy(all, flatten(strings.TrimPrefix(path+"."+key, "."), child))
	}
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			add(key, child)
		}
		if len(value) == 0 {
			all[path] = "{}"
		}
	case []any:
		for i, child := range value {
			add(fmt.Sprint(i), child)
		}
		if len(value) == 0 {
			all[path] = "[]"
		}
	default:
		all[path] = fmt.Sprint(value)
	}
	return all
}
