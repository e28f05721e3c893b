package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// A Site is an Infra named demo with everything around it. It is used by one test at a time, whose T it
// contains.
//
// In arguments of its methods, $ns is replaced by the Infra's namespace, $vlan by the Infra's network, $vmnet by
// the VMs' one ("namespace/name") and $net by the first three numbers of its addresses. The hosted control plane is
// in namespace $ns-demo.
type Site struct {
	*testing.T

	// ControlPlane is the management cluster's control plane, and Client a client of it.
	ControlPlane *lab.ControlPlane
	Client       client.Client
	// Namespace, VLAN and Net are the values of $ns, $vlan and $net.
	Namespace, VLAN, Net string
	// VMNetwork is the value of $vmnet; "$ns/$vlan" if it is empty. Where Multus isolates namespaces, it is of VMs' namespace.
	VMNetwork string
	// Doctor runs 'kubectl oooi doctor demo -n NAMESPACE' with further arguments.
	Doctor func(t *testing.T, args ...string) Output
	// Timeout is how long doctor's findings may differ from the expected ones. With 0, doctor runs once: only
	// the test changes a simulated site.
	Timeout time.Duration
	// Bundles is the directory for the bundle of each fault.
	Bundles string
	// Node is set for a site on a real node.
	Node *NodeSite
	// LiveDaemons is true if there is no node, but the daemons run and write their own status.
	LiveDaemons bool
	// FloatingAddress is true if the proxy has several replicas and a floating address.
	FloatingAddress bool

	undo        []func()
	unavailable map[string]bool // codes of checks that cannot run here
}

// Output is the output of a command and its exit code.
type Output struct {
	Stdout, Stderr string
	Code           int
}

// expand replaces the site's variables in a text.
func (s *Site) expand(text string) string {
	return os.Expand(text, func(name string) string {
		switch name {
		case "ns":
			return s.Namespace
		case "vlan":
			return s.VLAN
		case "net":
			return s.Net
		case "vmnet":
			return cmp.Or(s.VMNetwork, s.Namespace+"/"+s.VLAN)
		}
		if name != strings.ToUpper(name) { // variables of a Corefile
			s.Fatalf("unknown variable $%s", name)
		}
		return "$" + name
	})
}

func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// Get returns an object, nil if it does not exist.
func (s *Site) Get(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	s.Helper()
	u := object(kind, s.expand(namespace), s.expand(name))
	if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		s.Fatal(err)
	}
	return u
}

// networkOfDNS returns the name of the NetworkAttachmentDefinition of the DNS pods.
func (s *Site) networkOfDNS() string {
	s.Helper()
	const set = "demo-dns"
	text, _, _ := unstructured.NestedString(s.Get(setKind, "$ns", set).Object, "spec", "template", "metadata", "annotations", "k8s.v1.cni.cncf.io/networks")
	var networks []struct{ Name string }
	if err := json.Unmarshal([]byte(text), &networks); err != nil || len(networks) != 1 {
		s.Fatalf("StatefulSet %s selects the networks %s: %v", set, text, err)
	}
	return networks[0].Name
}

// Await waits until a condition holds, and fails the test after a minute.
func (s *Site) Await(what string, condition func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("waited a minute for %s", what)
		}
	}
}

// Undo registers a function that Mend calls. The functions run in reverse order.
func (s *Site) Undo(undo func()) { s.undo = append(s.undo, undo) }

// Patch applies a merge patch to an object, until Mend.
func (s *Site) Patch(kind schema.GroupVersionKind, namespace, name, body string) {
	s.Helper()
	before := s.patch(kind, namespace, name, body, s.Client.Patch)
	s.Undo(func() {
		now := s.Get(kind, namespace, name)
		was := now.DeepCopy()
		was.Object["spec"], was.Object["data"] = before.Object["spec"], before.Object["data"]
		for _, part := range []string{"endpoints", "ports", "automountServiceAccountToken"} { // of EndpointSlices and ServiceAccounts
			if before.Object[part] != nil {
				was.Object[part] = before.Object[part]
			}
		}
		if kind == machineKind { // has no status subresource
			was.Object["status"] = before.Object["status"]
		}
		was.SetAnnotations(before.GetAnnotations())
		was.SetLabels(before.GetLabels())
		if err := s.Client.Patch(s.Context(), was, client.MergeFrom(now)); err != nil {
			s.Fatal(err)
		}
	})
}

// PatchStatus applies a merge patch, {"status": ...}, to an object's status, until Mend.
func (s *Site) PatchStatus(kind schema.GroupVersionKind, namespace, name, body string) {
	s.Helper()
	status := s.Client.Status()
	before := s.patch(kind, namespace, name, body, func(ctx context.Context, u client.Object, p client.Patch, _ ...client.PatchOption) error {
		return status.Patch(ctx, u, p)
	})
	s.Undo(func() { s.restoreStatus(before) })
}

// patch patches an object with the function send, and returns the object as it was before.
func (s *Site) patch(kind schema.GroupVersionKind, namespace, name, body string, send func(context.Context, client.Object, client.Patch, ...client.PatchOption) error) *unstructured.Unstructured {
	s.Helper()
	before := s.Get(kind, namespace, name)
	if before == nil {
		s.Fatalf("%s %s/%s does not exist", kind.Kind, namespace, name)
	}
	if err := send(s.Context(), object(kind, before.GetNamespace(), before.GetName()), client.RawPatch(types.MergePatchType, []byte(s.expand(body)))); err != nil {
		s.Fatal(err)
	}
	return before
}

// restoreStatus restores the status of an object.
func (s *Site) restoreStatus(before *unstructured.Unstructured) {
	s.Helper()
	now := s.Get(before.GroupVersionKind(), before.GetNamespace(), before.GetName())
	was := now.DeepCopy()
	was.Object["status"] = before.Object["status"]
	if err := s.Client.Status().Patch(s.Context(), was, client.MergeFrom(now)); err != nil {
		s.Fatal(err)
	}
}

// setLimit sets a limit of a container. Mend raises it to 64Gi, because a limit cannot be removed from a
// running pod.
func (s *Site) setLimit(pod, container, resource, quantity string) {
	s.Helper()
	set := func(quantity string) {
		body := fmt.Sprintf(`{"spec": {"containers": [{"name": %[1]q, "resources": {"requests": {%[2]q: %[3]q}, "limits": {%[2]q: %[3]q}}}]}}`, container, resource, quantity)
		o := object(podKind, s.Namespace, pod)
		if err := s.Client.SubResource("resize").Patch(s.Context(), o, client.RawPatch(types.StrategicMergePatchType, []byte(body))); err != nil {
			s.Fatal(err)
		}
	}
	s.Undo(func() { set("64Gi") })
	set(quantity)
}

// Remove deletes an object, but not the pods of a workload, until Mend.
func (s *Site) Remove(kind schema.GroupVersionKind, namespace, name string) {
	s.Helper()
	before := s.delete(kind, namespace, name)
	s.Undo(func() {
		s.recreate(before)
		if before.Object["status"] != nil && s.Node == nil && !s.LiveDaemons { // otherwise its daemon or controller writes the status
			s.restoreStatus(before)
		}
	})
}

// recreate creates a deleted object again. If it was applied, it is applied by the same field manager, which
// can then apply changes.
func (s *Site) recreate(before *unstructured.Unstructured) {
	s.Helper()
	copied := before.DeepCopy()
	copied.SetResourceVersion("")
	copied.SetUID("")
	copied.SetManagedFields(nil)
	unstructured.RemoveNestedField(copied.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(copied.Object, "metadata", "generation")
	unstructured.RemoveNestedField(copied.Object, "status")
	for _, m := range before.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" {
			if err := s.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(copied), client.FieldOwner(m.Manager), client.ForceOwnership); err != nil {
				s.Fatal(err)
			}
			return
		}
	}
	if err := s.Client.Create(s.Context(), copied); err != nil {
		s.Fatal(err)
	}
}

// delete deletes an object, but not the pods of a workload, and returns the object as it was before.
func (s *Site) delete(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	s.Helper()
	before := s.Get(kind, namespace, name)
	if before == nil {
		s.Fatalf("%s %s/%s does not exist", kind.Kind, namespace, name)
	}
	propagation := client.PropagationPolicy("Background")
	if kind.Group == setKind.Group { // keeps the pods; elsewhere it would only wait for the garbage collector
		propagation = "Orphan"
	}
	if err := s.Client.Delete(s.Context(), before.DeepCopy(), propagation); err != nil {
		s.Fatal(err)
	}
	s.Await(name+" to be deleted", func() bool { return s.Get(kind, namespace, name) == nil })
	return before
}

// Apply applies objects. Mend does not delete them.
func (s *Site) Apply(yaml string) {
	s.Helper()
	if err := s.ControlPlane.ApplyYAML(s.Context(), []byte(s.expand(yaml))); err != nil {
		s.Fatal(err)
	}
}

// Add applies objects, until Mend.
func (s *Site) Add(yaml string) {
	s.Helper()
	s.Apply(yaml)
	s.Undo(func() {
		if err := s.ControlPlane.DeleteYAML(s.Context(), []byte(s.expand(yaml))); err != nil {
			s.Fatal(err)
		}
	})
}

// Mend reverts all changes, the last one first.
func (s *Site) Mend() {
	s.Helper()
	for len(s.undo) > 0 {
		last := s.undo[len(s.undo)-1]
		s.undo = slices.Delete(s.undo, len(s.undo)-1, len(s.undo))
		last()
	}
	s.markObserved()
}
