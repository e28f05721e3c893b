package objects_test

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/lab"
)

// decodeService decodes a Service from YAML.
func decodeService(t *testing.T, text string) *objects.Service {
	t.Helper()
	u := &unstructured.Unstructured{}
	lab.Must(t, yaml.Unmarshal([]byte(text), &u.Object))
	s, ok := objects.Decode[objects.Service](u).(*objects.Service)
	if !ok {
		t.Fatalf("not decoded: %s", text)
	}
	return s
}

func TestServiceAddresses(t *testing.T) {
	tests := []struct {
		name, spec string
		want       []string
	}{
		{"none yet", "{}", nil},
		{"one", "{clusterIP: 10.96.0.1}", []string{"10.96.0.1"}},
		{"one of each family", "{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1']}", []string{"10.96.0.1", "fd00::1"}},
		{"headless", "{clusterIP: None, clusterIPs: [None]}", nil},
		{"headless without clusterIPs", "{clusterIP: None}", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := decodeService(t, "{kind: Service, metadata: {name: a}, spec: "+test.spec+"}")
			if got := s.Addresses(); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLoadBalancerIPs(t *testing.T) {
	tests := []struct {
		name, status string
		want         []string
	}{
		{"no status", "{}", nil},
		{"nothing assigned", "{loadBalancer: {}}", nil},
		{"one of each family, in their order", "{loadBalancer: {ingress: [{ip: 'fd00::1'}, {ip: 192.0.2.1, ipMode: VIP, ports: [{port: 443}]}]}}", []string{"fd00::1", "192.0.2.1"}},
		{"hostnames are ignored", "{loadBalancer: {ingress: [{hostname: evil.example.com}, {ip: 192.0.2.1, hostname: evil.example.com}]}}", []string{"192.0.2.1"}},
		{"not an address, unparsed", "{loadBalancer: {ingress: [{ip: 'not an address'}]}}", []string{"not an address"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := decodeService(t, "{kind: Service, metadata: {name: a}, status: "+test.status+"}")
			if got := s.LoadBalancerIPs(); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOnlyLoadBalancersKeepLabels(t *testing.T) {
	const metadata = `{name: a, namespace: b, labels: {x: z}, annotations: {x: z}, resourceVersion: "7", generation: 3, generateName: a,
		finalizers: [x], ownerReferences: [{kind: Pod, name: x}], managedFields: [{manager: x}]}`
	for _, test := range []struct{ kind, want string }{
		{"LoadBalancer", `{"name":"a","namespace":"b","labels":{"x":"z"}}`},
		{"ClusterIP", `{"name":"a","namespace":"b"}`},
		{"", `{"name":"a","namespace":"b"}`},
	} {
		t.Run("type "+test.kind, func(t *testing.T) {
			got, err := json.Marshal(decodeService(t, "{kind: Service, metadata: "+metadata+", spec: {type: '"+test.kind+"'}}").ObjectMeta)
			lab.Must(t, err)
			if string(got) != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestAppsServiceSurvivesJSON checks that an AppsService can be stored in the snapshot file.
func TestAppsServiceSurvivesJSON(t *testing.T) {
	in := objects.AppsService{
		Service: decodeService(t, "{kind: Service, metadata: {name: a}, spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}}"),
		Read:    true, Fault: objects.Fault{Reason: "KubeconfigMissing", Message: "not found"},
	}
	in.Namespace, in.Name = "clusters", "demo"
	data, err := json.Marshal(in)
	lab.Must(t, err)
	var out objects.AppsService
	lab.Must(t, json.Unmarshal(data, &out))
	again, err := json.Marshal(out)
	lab.Must(t, err)
	if string(data) != string(again) || out.Service.LoadBalancerIPs()[0] != "192.0.2.1" || !out.Read || out.Fault != in.Fault {
		t.Errorf("%s became %s", data, again)
	}
}
