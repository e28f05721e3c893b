package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// denyPods is a ValidatingAdmissionPolicy that denies the pods of a namespace, its first argument, that match a CEL
// expression, its second.
const denyPods = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: only, expression: %[2]q}]
  validations: [{expression: "false", message: no such pods here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`

// setReady marks the pods of StatefulSets as ready, as their kubelet would.
func (s *site) setReady(sets ...string) {
	s.Helper()
	for _, set := range sets {
		pod := s.Pod(set)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`))
		s.Must(s.Client.Status().Patch(s.Context(), pod, patch))
		lab.Poll(s, "StatefulSet "+set+" to have a ready pod", func() bool {
			var live appsv1.StatefulSet
			err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: set}, &live)
			return err == nil && live.Status.ReadyReplicas == 1
		})
	}
}

// TestChangeWhosePodsCannotBeReplacedIsRefused makes a change while present pods could not be replaced. The serving
// pods must stay.
func TestChangeWhosePodsCannotBeReplacedIsRefused(t *testing.T) {
	const moreResolvers, twoReplicas = "dnsServers: [203.0.113.53, 203.0.113.54]", "dhcp: {instances: [{ip: 192.0.2.2}, {ip: 192.0.2.5}]"
	for _, tc := range []struct {
		name string
		// prepare creates the obstacle. It returns a condition for its effect.
		prepare func(s *site) (effective func() bool)
		// from, to is the change of the file.
		from, to string
		flags    []string
		want     string
	}{
		{
			name: "finalizer on a pod", from: "dnsServers: [203.0.113.53]", to: moreResolvers, want: "has the finalizers example.com/audit and would not be deleted",
			prepare: func(s *site) func() bool {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": ["example.com/audit"]}}`))
				s.Must(s.Client.Patch(s.Context(), s.Pod("demo-dns"), patch))
				return nil
			},
		},
		{
			name: "policy for pods of StatefulSets", from: "dnsServers: [203.0.113.53]", to: moreResolvers, want: "no such pods here",
			prepare: func(s *site) func() bool {
				s.Apply(fmt.Sprintf(denyPods, s.Namespace, "has(object.metadata.labels) && 'controller-revision-hash' in object.metadata.labels"))
				return s.denies(map[string]string{appsv1.ControllerRevisionHashLabelKey: "x"})
			},
		},
		{
			name: "policy that exempts the user", from: "dnsServers: [203.0.113.53]", to: moreResolvers, want: "the API server refused the pod of the check",
			prepare: func(s *site) func() bool {
				s.Apply(fmt.Sprintf(denyPods, s.Namespace, "!('system:masters' in request.userInfo.groups) || 'probe' in object.metadata.labels"))
				return s.denies(map[string]string{"probe": "x"})
			},
		},
		{
			name: "policy with a StatefulSet deleted without its pods", from: "dnsServers: [203.0.113.53]", to: moreResolvers, want: "no such pods here",
			prepare: func(s *site) func() bool {
				set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "demo-dns"}}
				s.Must(s.Client.Delete(s.Context(), set, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
				s.Apply(fmt.Sprintf(denyPods, s.Namespace, "object.metadata.labels['app.kubernetes.io/component'] == 'dns'"))
				return s.denies(map[string]string{"app.kubernetes.io/component": "dns"})
			},
		},
		{
			name: "policy with StatefulSets of other names", from: "dhcp: {serverIP: 192.0.2.2", to: twoReplicas, want: "no such pods here",
			prepare: func(s *site) func() bool {
				s.Apply(fmt.Sprintf(denyPods, s.Namespace, "object.metadata.labels['app.kubernetes.io/component'] == 'dhcp'"))
				return s.denies(map[string]string{"app.kubernetes.io/component": "dhcp"})
			},
		},
		{
			name: "quota without room for a second replica", from: "dhcp: {serverIP: 192.0.2.2", to: twoReplicas, want: "exceeded quota: small",
			prepare: func(s *site) func() bool {
				s.Apply(fmt.Sprintf("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small, namespace: %s}\nspec: {hard: {pods: 3}}\n", s.Namespace))
				return func() bool {
					var quota corev1.ResourceQuota
					err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "small"}, &quota)
					return err == nil && quota.Status.Used.Pods().Value() == 3
				}
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSite(t)
			s.Setup()
			s.setReady("demo-dhcp", "demo-dns", "demo-proxy")
			if effective := tc.prepare(s); effective != nil {
				lab.Poll(t, "the obstacle to take effect", effective)
			}
			changed := strings.Replace(s.Infra, tc.from, tc.to, 1)
			if changed == s.Infra {
				t.Fatalf("the Infra does not contain %q", tc.from)
			}
			s.Infra = changed
			_, stderr, code := s.Run(append([]string{"setup", "-f", "FILE", "--wait=false", "--timeout=1m"}, tc.flags...)...)
			if code != 1 || !strings.Contains(stderr, tc.want) || !strings.Contains(stderr, "nothing was applied") {
				t.Errorf("setup exited with %d and printed %s, want %q", code, stderr, tc.want)
			}
			for _, set := range []string{"demo-dhcp", "demo-dns", "demo-proxy"} {
				if pod := s.Pod(set); pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
					t.Errorf("pod %s is being replaced", pod.Name)
				}
			}
		})
	}
}

// denies returns a condition: a pod with some labels is denied.
func (s *site) denies(labels map[string]string) func() bool {
	s.Cleanup(func() {
		for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			text := fmt.Sprintf("apiVersion: admissionregistration.k8s.io/v1\nkind: %s\nmetadata: {name: %s}\n", kind, s.Namespace)
			if err := s.ControlPlane.DeleteYAML(s.AfterTest(), []byte(text)); err != nil {
				s.Error(err)
			}
		}
	})
	return func() bool {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, GenerateName: "try-", Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "try", Image: "localhost/none:1"}}},
		}
		err := s.Client.Create(s.Context(), pod, client.DryRunAll)
		return err != nil && strings.Contains(err.Error(), "no such pods here")
	}
}
