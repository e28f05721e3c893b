package faults

import (
	"context"
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

// A Site is an Infra named demo, and everything around it. It is for one test at a time, whose T
// is in it.
//
// In the texts that its methods take, $ns stands for the Infra's namespace, $vlan for the machines'
// network and $net for the first three numbers of its addresses. The hosted control plane is in
// namespace $ns-demo.
type Site struct {
	*testing.T

	// ControlPlane is the management cluster's, Client one of its.
	ControlPlane *lab.ControlPlane
	Client       client.Client
	// Namespace, VLAN and Net are what $ns, $vlan and $net stand for.
	Namespace, VLAN, Net string
	// Doctor runs 'kubectl oooi doctor demo -n NAMESPACE' with further arguments.
	Doctor func(t *testing.T, args ...string) Answer
	// Patience is for how long what doctor finds may differ from what it should: none where nobody
	// but the test writes.
	Patience time.Duration
	// Bundles is a folder for what --save writes for each fault.
	Bundles string
	// Node is where the site's pods run; nil for a simulated one.
	Node *NodeSite
	// Alive: there is no node, and the daemons run all the same and write their own statuses.
	Alive bool
	// Floats: the proxy has several instances, between which its address moves.
	Floats bool

	undo   []func()
	unmade map[string]bool // checks that cannot be made here
}

// Answer is what a command has said.
type Answer struct {
	Out, Said string
	Code      int
}

// expand puts in what is the site's.
func (s *Site) expand(text string) string {
	return os.Expand(text, func(name string) string {
		switch name {
		case "ns":
			return s.Namespace
		case "vlan":
			return s.VLAN
		case "net":
			return s.Net
		}
		if name != strings.ToUpper(name) { // those are a Corefile's
			s.Fatalf("there is no $%s", name)
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

// There is an object as it is; nil for none.
func (s *Site) There(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
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

// Await waits until something is so.
func (s *Site) Await(what string, so func() bool) {
	s.Helper()
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("waited a minute for %s", what)
		}
	}
}

// Undo has Mend do something, before what was changed earlier is changed back.
func (s *Site) Undo(undo func()) { s.undo = append(s.undo, undo) }

// Patch changes an object by a merge patch until Mend.
func (s *Site) Patch(kind schema.GroupVersionKind, namespace, name, body string) {
	s.Helper()
	before := s.patch(kind, namespace, name, body, s.Client.Patch)
	s.Undo(func() {
		now := s.There(kind, namespace, name)
		was := now.DeepCopy()
		was.Object["spec"], was.Object["data"] = before.Object["spec"], before.Object["data"]
		for _, part := range []string{"endpoints", "ports"} { // an EndpointSlice's
			if before.Object[part] != nil {
				was.Object[part] = before.Object[part]
			}
		}
		if kind == machineKind { // which has no subresource
			was.Object["status"] = before.Object["status"]
		}
		was.SetAnnotations(before.GetAnnotations())
		was.SetLabels(before.GetLabels())
		if err := s.Client.Patch(s.Context(), was, client.MergeFrom(now)); err != nil {
			s.Fatal(err)
		}
	})
}

// PatchStatus changes an object's status by a merge patch, {"status": ...}, until Mend.
func (s *Site) PatchStatus(kind schema.GroupVersionKind, namespace, name, body string) {
	s.Helper()
	status := s.Client.Status()
	before := s.patch(kind, namespace, name, body, func(ctx context.Context, u client.Object, p client.Patch, _ ...client.PatchOption) error {
		return status.Patch(ctx, u, p)
	})
	s.Undo(func() { s.restoreStatus(before) })
}

// patch changes an object, and returns what it was.
func (s *Site) patch(kind schema.GroupVersionKind, namespace, name, body string, send func(context.Context, client.Object, client.Patch, ...client.PatchOption) error) *unstructured.Unstructured {
	s.Helper()
	before := s.There(kind, namespace, name)
	if before == nil {
		s.Fatalf("there is no %s %s/%s", kind.Kind, namespace, name)
	}
	if err := send(s.Context(), object(kind, before.GetNamespace(), before.GetName()), client.RawPatch(types.MergePatchType, []byte(s.expand(body)))); err != nil {
		s.Fatal(err)
	}
	return before
}

// restoreStatus gives an object the status that it had.
func (s *Site) restoreStatus(before *unstructured.Unstructured) {
	s.Helper()
	now := s.There(before.GroupVersionKind(), before.GetNamespace(), before.GetName())
	was := now.DeepCopy()
	was.Object["status"] = before.Object["status"]
	if err := s.Client.Status().Patch(s.Context(), was, client.MergeFrom(now)); err != nil {
		s.Fatal(err)
	}
}

// limit gives a container of a Pod a limit until Mend, when it has a very high one: it cannot be taken
// away.
func (s *Site) limit(pod, container, resource, quantity string) {
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

// Remove deletes an object, without what belongs to it, until Mend.
func (s *Site) Remove(kind schema.GroupVersionKind, namespace, name string) {
	s.Helper()
	before := s.delete(kind, namespace, name)
	s.Undo(func() {
		s.again(before)
		if before.Object["status"] != nil && s.Node == nil && !s.Alive { // else it has an author
			s.restoreStatus(before)
		}
	})
}

// again makes an object that was deleted, for whoever has applied it, so that he may go on.
func (s *Site) again(before *unstructured.Unstructured) {
	s.Helper()
	again := before.DeepCopy()
	again.SetResourceVersion("")
	again.SetUID("")
	again.SetManagedFields(nil)
	unstructured.RemoveNestedField(again.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(again.Object, "metadata", "generation")
	unstructured.RemoveNestedField(again.Object, "status")
	for _, m := range before.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "" {
			if err := s.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(again), client.FieldOwner(m.Manager), client.ForceOwnership); err != nil {
				s.Fatal(err)
			}
			return
		}
	}
	if err := s.Client.Create(s.Context(), again); err != nil {
		s.Fatal(err)
	}
}

// delete deletes an object, without what belongs to it, and returns what it was.
func (s *Site) delete(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	s.Helper()
	before := s.There(kind, namespace, name)
	if before == nil {
		s.Fatalf("there is no %s %s/%s", kind.Kind, namespace, name)
	}
	propagation := client.PropagationPolicy("Background")
	if kind.Group == setKind.Group { // its pods stay; the garbage collector takes its time for that
		propagation = "Orphan"
	}
	if err := s.Client.Delete(s.Context(), before.DeepCopy(), propagation); err != nil {
		s.Fatal(err)
	}
	s.Await(name+" to be gone", func() bool { return s.There(kind, namespace, name) == nil })
	return before
}

// Apply applies objects, which stay.
func (s *Site) Apply(yaml string) {
	s.Helper()
	if err := s.ControlPlane.ApplyYAML(s.Context(), []byte(s.expand(yaml))); err != nil {
		s.Fatal(err)
	}
}

// Add makes objects until Mend.
func (s *Site) Add(yaml string) {
	s.Helper()
	s.Apply(yaml)
	s.Undo(func() {
		if err := s.ControlPlane.DeleteYAML(s.Context(), []byte(s.expand(yaml))); err != nil {
			s.Fatal(err)
		}
	})
}

// Mend undoes everything, the last first.
func (s *Site) Mend() {
	s.Helper()
	for len(s.undo) > 0 {
		last := s.undo[len(s.undo)-1]
		s.undo = slices.Delete(s.undo, len(s.undo)-1, len(s.undo))
		last()
	}
	s.seen()
}
