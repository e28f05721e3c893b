package objects_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestTranscript runs the transcript testdata/objects.txt. Each line is a Service or a HostedCluster without metadata in YAML. Of a Service, which has
// the metadata of an API server's response, the output is what is decoded; of a HostedCluster, which services nodes cannot reach.
func TestTranscript(t *testing.T) {
	const metadata = `{name: a, namespace: b, labels: {x: z}, annotations: {x: z}, resourceVersion: "7", generation: 3, generateName: a,
		finalizers: [x], ownerReferences: [{kind: Pod, name: x}], managedFields: [{manager: x}]}`
	golden.Transcript(t, "testdata/objects.txt", func(line string) []string {
		kind, text, _ := strings.Cut(line, " ")
		u := object(t, lab.Merge("{kind: "+kind+", metadata: "+metadata+"}", text))
		switch kind {
		case "Service":
			s, ok := objects.Decode[objects.Service](u).(*objects.Service)
			if !ok {
				t.Fatalf("not decoded: %s", line)
			}
			decoded, err := json.Marshal(s.ObjectMeta)
			lab.Must(t, err)
			return []string{fmt.Sprintf("addresses %q, load balancer %q, metadata %s", s.Addresses(), s.LoadBalancerIPs(), decoded)}
		case "HostedCluster":
			hc, ok := objects.Decode[objects.HostedCluster](u).(*objects.HostedCluster)
			if !ok {
				t.Fatalf("not decoded: %s", line)
			}
			return hc.UnreachableServices()
		}
		t.Fatalf("unknown kind %s", kind)
		return nil
	})
}

// TestAppsServiceSurvivesJSON checks that an AppsService can be stored in the snapshot file.
func TestAppsServiceSurvivesJSON(t *testing.T) {
	in := objects.AppsService{Service: &objects.Service{}, Read: true, Fault: objects.Fault{Reason: "KubeconfigMissing", Message: "not found"}}
	in.Namespace, in.Name, in.Service.Name = "clusters", "demo", "a"
	in.Service.Status.LoadBalancer.Ingress = []objects.LoadBalancerIngress{{IP: "192.0.2.1"}}
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
