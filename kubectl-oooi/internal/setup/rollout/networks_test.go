package rollout_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/test/lab"
)

// setLocalnet makes the VMs' network a localnet of OVN-Kubernetes.
func (s *runningSite) setLocalnet(vlan int) {
	s.Helper()
	s.Apply(fmt.Sprintf(`
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: vlan100, namespace: %[1]s}
spec: {config: '{"cniVersion": "1.0.0", "type": "ovn-k8s-cni-overlay", "topology": "localnet", "name": "physnet", "netAttachDefName": "%[1]s/vlan100", "vlanID": %[2]d}'}
`, s.Namespace, vlan))
}

// recordNetworks records each configuration of NetworkAttachmentDefinitions other than the VMs', by its network's name,
// until the result is called, which returns them.
func (s *runningSite) recordNetworks() func() map[string][]string {
	s.Helper()
	c, err := client.NewWithWatch(s.ControlPlane.RESTConfig(), client.Options{})
	s.Must(err)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(read.AttachmentKind)
	events, err := c.Watch(s.Context(), list, client.InNamespace(s.Namespace))
	s.Must(err)
	found, done := map[string][]string{}, make(chan struct{})
	go func() {
		defer close(done)
		for event := range events.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok || o.GetName() == "vlan100" {
				continue
			}
			text, _, _ := unstructured.NestedString(o.Object, "spec", "config")
			var config struct{ Name string }
			lab.Report(s, json.Unmarshal([]byte(text), &config))
			if !slices.Contains(found[config.Name], text) {
				found[config.Name] = append(found[config.Name], text)
			}
		}
	}()
	return func() map[string][]string {
		events.Stop()
		<-done
		return found
	}
}

// attachments returns the names of the NetworkAttachmentDefinitions, sorted.
func (s *runningSite) attachments() []string {
	s.Helper()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(read.AttachmentKind)
	s.Must(s.Client.List(s.Context(), list, client.InNamespace(s.Namespace)))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// TestChangedConfigurationCreatesNetwork changes the VLAN ID of a localnet of OVN-Kubernetes, which refuses a second
// network with the same name and another configuration, and applies an edit to running pods. DNS does not start on the new
// network at first.
func TestChangedConfigurationCreatesNetwork(t *testing.T) {
	s := newRunningSite(t)
	no := func(*corev1.Pod) bool { return false }
	s.setLocalnet(100)
	s.Expect(0, "setup -f FILE")
	old, before := s.NetworkOf("demo-dns"), s.networkOf("demo-dns")
	networks := s.recordNetworks()
	s.setLocalnet(200)
	s.behave(no, func(pod *corev1.Pod) bool {
		return pod.Name == "demo-dns-0" && !strings.Contains(pod.Annotations[render.NetworksAnnotation], old)
	})
	stderr, code := s.setup()
	if want := "rolled back to revision 2"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("setup exited with %d, want %q in %s", code, want, stderr)
	}
	if s.NetworkOf("demo-dns") != old || s.networkOf("demo-dns") != before {
		t.Errorf("after the rollback DNS has the network %s, and had %s", s.networkOf("demo-dns"), before)
	}
	s.behave(no, no)
	s.Expect(0, "setup -f FILE")
	want := []string{s.NetworkOf("demo-dhcp"), s.NetworkOf("demo-dns"), s.NetworkOf("demo-proxy"), "vlan100"}
	if got := s.attachments(); !slices.Equal(got, want) || slices.Contains(want, old) {
		t.Errorf("NetworkAttachmentDefinitions %q, want %q without %s", got, want, old)
	}
	found := networks()
	for name, configs := range found {
		if len(configs) != 1 {
			t.Errorf("network %s had the configurations %q", name, configs)
		}
	}
	if len(found) < 8 { // of three components before and after, and of the checks
		t.Errorf("networks %v", found)
	}
}

// TestReplacesEarlierNetworksOnce sets up a site whose NetworkAttachmentDefinitions have the names of the
// StatefulSets, as earlier versions named them.
func TestReplacesEarlierNetworksOnce(t *testing.T) {
	s := newRunningSite(t)
	options := []client.ApplyOption{client.FieldOwner(setup.Manager), client.ForceOwnership}
	sets := []string{"demo-dhcp", "demo-dns", "demo-proxy"}
	for _, name := range sets {
		nad, set := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		nad.SetGroupVersionKind(read.AttachmentKind)
		set.SetAPIVersion("apps/v1")
		set.SetKind("StatefulSet")
		current := s.NetworkOf(name)
		for o, key := range map[*unstructured.Unstructured]string{nad: current, set: name} {
			s.Get(key, o)
			o.SetManagedFields(nil)
			o.SetResourceVersion("")
			o.SetUID("")
			delete(o.Object, "status")
		}
		nad.SetName(name)
		annotations, _, _ := unstructured.NestedStringMap(set.Object, "spec", "template", "metadata", "annotations")
		annotations[render.NetworksAnnotation] = strings.ReplaceAll(annotations[render.NetworksAnnotation], current, name)
		s.Must(unstructured.SetNestedStringMap(set.Object, annotations, "spec", "template", "metadata", "annotations"))
		for _, o := range []*unstructured.Unstructured{nad, set} {
			s.Must(s.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), options...))
		}
		nad.SetName(current)
		s.Must(s.Client.Delete(t.Context(), nad))
	}
	for _, name := range sets {
		s.awaitReady(name + "-0")
	}
	stderr, code := s.setup()
	if code != 0 {
		t.Errorf("setup exited with %d: %s", code, stderr)
	}
	if got := s.attachments(); slices.ContainsFunc(got, func(name string) bool { return slices.Contains(sets, name) }) {
		t.Errorf("NetworkAttachmentDefinitions %q", got)
	}
	pods := s.podUIDs()
	if stderr, code := s.setup(); code != 0 || !slices.Equal(pods, s.podUIDs()) {
		t.Errorf("the second setup replaces pods; it exited with %d: %s", code, stderr)
	}
}

// networkOf returns the CNI configuration of a StatefulSet's pods.
func (s *runningSite) networkOf(set string) string {
	s.Helper()
	config, _, _ := unstructured.NestedString(s.Object(read.AttachmentKind, s.NetworkOf(set)).Object, "spec", "config")
	return config
}
