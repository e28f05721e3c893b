package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// Site is an Infra clusters/demo with everything around it; the hosted control plane is in namespace clusters-demo. It is used
// by one test at a time, whose T it contains.
//
// Its methods identify an object by a text such as "v1 Service clusters/demo-dns", or "v1 Node node-a".
type Site struct {
	*testing.T

	// ControlPlane is the management cluster's control plane, and Client a client of it.
	ControlPlane *lab.ControlPlane
	Client       client.Client
	// Doctor runs 'kubectl oooi doctor demo -n clusters' with additional arguments.
	Doctor func(t *testing.T, args ...string) lab.Result
	// Timeout is how long doctor may take to report a fault, or its end.
	Timeout time.Duration

	undo []func()
}

// object returns an object without content.
func object(id string) *unstructured.Unstructured {
	words := strings.Fields(id) // faults have constant texts
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(words[0])
	u.SetKind(words[1])
	namespace, name, namespaced := strings.Cut(words[2], "/")
	if !namespaced {
		namespace, name = "", namespace
	}
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// Get returns an object, nil if it does not exist.
func (s *Site) Get(id string) *unstructured.Unstructured {
	s.Helper()
	u := object(id)
	if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		s.Fatal(err)
	}
	return u
}

// mustGet returns an object that exists.
func (s *Site) mustGet(id string) *unstructured.Unstructured {
	s.Helper()
	u := s.Get(id)
	if u == nil {
		s.Fatalf("%s does not exist", id)
	}
	return u
}

// field returns a text in an object.
func (s *Site) field(id string, path ...string) string {
	s.Helper()
	text, _, err := unstructured.NestedString(s.mustGet(id).Object, path...)
	lab.Must(s, err)
	return text
}

// Await waits until a condition holds.
func (s *Site) Await(what string, condition func() bool) {
	s.Helper()
	lab.Poll(s, what, condition)
}

// Undo registers a function that reverts a change. The functions run in reverse order.
func (s *Site) Undo(undo func()) { s.undo = append(s.undo, undo) }

// Patch applies a merge patch to an object, and PatchStatus to its status.
func (s *Site) Patch(id, body string) {
	s.Helper()
	s.patch(id, body, s.Client)
}

// PatchStatus applies a merge patch, {"status": ...}, to the status of an object.
func (s *Site) PatchStatus(id, body string) {
	s.Helper()
	s.patch(id, body, statusWriter{s.Client.Status()})
}

// patcher patches an object or its status.
type patcher interface {
	Patch(ctx context.Context, o client.Object, p client.Patch, more ...client.PatchOption) error
}

type statusWriter struct{ client.SubResourceWriter }

func (w statusWriter) Patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	return w.SubResourceWriter.Patch(ctx, o, p)
}

func (s *Site) patch(id, body string, with patcher) {
	s.Helper()
	before := s.mustGet(id)
	var changes map[string]any
	if err := json.Unmarshal([]byte(body), &changes); err != nil {
		s.Fatalf("%v: %s", err, body)
	}
	send := func(body string) error {
		return with.Patch(s.Context(), object(id), client.RawPatch(types.MergePatchType, []byte(body)))
	}
	lab.Must(s, send(body))
	s.Undo(func() {
		if err := client.IgnoreNotFound(send(toJSON(inverse(changes, before.Object)))); err != nil { // deleted meanwhile
			s.Fatal(err)
		}
	})
}

// inverse returns the merge patch that restores the fields that another one changes.
func inverse(changes, before map[string]any) map[string]any {
	restore := map[string]any{}
	for name, change := range changes {
		restore[name] = before[name]
		inner, isMap := change.(map[string]any)
		if was, ok := before[name].(map[string]any); ok && isMap {
			restore[name] = inverse(inner, was)
		}
	}
	return restore
}

// Remove deletes an object, but not the pods of a workload.
func (s *Site) Remove(id string) {
	s.Helper()
	before := s.mustGet(id)
	propagation := client.PropagationPolicy("Background")
	if strings.HasPrefix(id, "apps/") { // elsewhere it would only wait for the garbage collector
		propagation = "Orphan"
	}
	lab.Must(s, s.Client.Delete(s.Context(), before.DeepCopy(), propagation))
	s.Await(id+" to be deleted", func() bool { return s.Get(id) == nil })
	s.Undo(func() { s.recreate(before) })
}

// recreate creates a deleted object again. If it was applied, it is applied by the same field manager, which
// can then apply changes.
func (s *Site) recreate(before *unstructured.Unstructured) {
	s.Helper()
	copied := before.DeepCopy()
	copied.SetResourceVersion("")
	copied.SetUID("")
	copied.SetManagedFields(nil)
	for _, field := range []string{"creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(copied.Object, "metadata", field)
	}
	var err error
	applied := slices.IndexFunc(before.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == ""
	})
	if applied >= 0 {
		unstructured.RemoveNestedField(copied.Object, "status")
		err = s.Client.Apply(s.Context(), client.ApplyConfigurationFromUnstructured(copied), client.FieldOwner(before.GetManagedFields()[applied].Manager), client.ForceOwnership)
	} else {
		err = s.Client.Create(s.Context(), copied)
	}
	if err == nil && before.GetKind() == "HostedCluster" { // controllers write the status of other kinds
		err = s.Client.Status().Patch(s.Context(), object(fmt.Sprintf("%s %s %s/%s", before.GetAPIVersion(), before.GetKind(), before.GetNamespace(), before.GetName())),
			client.RawPatch(types.MergePatchType, []byte(toJSON(map[string]any{"status": before.Object["status"]}))))
	}
	lab.Must(s, err)
}

// Apply applies objects, which stay.
func (s *Site) Apply(yaml string) {
	s.Helper()
	lab.Must(s, s.ControlPlane.ApplyYAML(s.Context(), []byte(yaml)))
}

// Add applies objects.
func (s *Site) Add(yaml string) {
	s.Helper()
	s.Apply(yaml)
	s.Undo(func() {
		lab.Must(s, s.ControlPlane.DeleteYAML(s.Context(), []byte(yaml)))
	})
}

// deny rejects writes of a resource in a namespace, with a message, by a policy with a name.
func (s *Site) deny(name, group, version, resource, namespace, message string) {
	s.Helper()
	s.Add(denial(name, "{apiGroups: ["+group+"], apiVersions: ["+version+"], resources: ["+resource+"], operations: [CREATE, UPDATE]}", message,
		"spec: {matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: "+namespace+"}}}}"))
}

// denial returns an admission policy with a name that rejects requests of a rule with a message, with changes as for lab.Merge.
func denial(name, rule, message string, changes ...string) string {
	return lab.Merge(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec: {failurePolicy: Fail, matchConstraints: {resourceRules: [%[2]s]}, validations: [{expression: "false", message: %[3]q}]}
`, name, rule, message), changes...) + lab.Merge(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, name))
}

// revert runs functions in reverse order.
func revert(undo []func()) {
	for _, f := range slices.Backward(undo) {
		f()
	}
}

// toJSON encodes a value that can be encoded.
func toJSON(value any) string {
	b, err := json.Marshal(value)
	if err != nil {
		panic(err) // values are strings or decoded JSON
	}
	return string(b)
}
