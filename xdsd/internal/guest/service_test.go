package guest_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// TestRejectedServiceIsReported checks rejections by a real API server: by admission policies, and of a change to
// an immutable field.
func TestRejectedServiceIsReported(t *testing.T) {
	h := newHosted(t)
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-ingress}")
	h.wanted.Service = types.NamespacedName{Namespace: "openshift-ingress", Name: "demo-apps"}
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-load-balancers}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [services], operations: [CREATE, UPDATE]}]}
  validations: [{expression: "object.spec.type != 'LoadBalancer'", message: no load balancers here, reason: REASON}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-load-balancers}
spec: {policyName: no-load-balancers, validationActions: [Deny]}
`
	wantRejected := func(name string, words ...string) {
		t.Helper()
		last := ""
		defer func() {
			if t.Failed() {
				t.Logf("%s: %s", name, last)
			}
		}()
		lab.Poll(h, name, func() bool {
			_, err := h.cluster.EnsureService(t.Context(), h.wanted)
			var fault *guest.Fault
			if !errors.As(err, &fault) || fault.Reason != v1alpha1.AppsIngressServiceRejected {
				last = fmt.Sprint(err)
				return false
			}
			last = fault.Message
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(last, word) })
		})
	}
	for _, reason := range []string{"Invalid", "Forbidden"} {
		with := strings.ReplaceAll(policy, "REASON", reason)
		h.apply(with)
		wantRejected("a policy with the reason "+reason, "applying Service openshift-ingress/demo-apps", "no load balancers here")
		h.delete(with)
	}
	lab.Poll(h, "the Service", func() bool {
		_, err := h.cluster.EnsureService(t.Context(), h.wanted)
		return err == nil
	})
	h.wanted.Apps.MetalLB.LoadBalancerClass = "metallb.io/other"
	wantRejected("another class", "spec.loadBalancerClass: Invalid value")
}

// TestForeignReaderIsNotChanged checks that the reader takes over no object of another client.
func TestForeignReaderIsNotChanged(t *testing.T) {
	h := newHosted(t)
	h.wanted.Service = types.NamespacedName{Namespace: "openshift-ingress", Name: "demo-apps"}
	const role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: demo-apps-reader, namespace: openshift-ingress}, rules: []}"
	h.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-ingress}\n---\n" + role)
	_, err := h.cluster.EnsureReader(t.Context(), h.wanted)
	var fault *guest.Fault
	if !errors.As(err, &fault) || fault.Reason != v1alpha1.AppsIngressServiceForeign || !strings.Contains(fault.Message, "Role openshift-ingress/demo-apps-reader exists") {
		t.Errorf("got %v", err)
	}
	h.delete(role)
	account, err := h.cluster.EnsureReader(t.Context(), h.wanted)
	if err != nil || account == "" {
		t.Errorf("ServiceAccount %q: %v", account, err)
	}
}
