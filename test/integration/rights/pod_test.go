package rights_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/test/lab"
)

// pod is a running Pod with its last readiness.
type pod struct {
	*lab.Pod

	status corev1.ConditionStatus
}

// pods waits until controllers have created n Pods of a component, and returns them.
func (s *site) pods(namespace, component string, n int) []corev1.Pod {
	s.Helper()
	var found []corev1.Pod
	lab.Await(s.T, fmt.Sprintf("%d pods of %s", n, component), func() string {
		list, err := s.kube.CoreV1().Pods(namespace).List(s.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=oooi,app.kubernetes.io/component=" + component})
		lab.Must(s, err)
		found = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if len(found) != n {
			return fmt.Sprintf("%d exist", len(found))
		}
		return ""
	})
	return found
}

// start runs a Pod at an address.
func (s *site) start(of *corev1.Pod, ip string) *pod {
	s.Helper()
	runner := &lab.PodRunner{ControlPlane: s.management, Client: s.kube, Programs: s.image}
	return &pod{runner.Start(s.T, of, ip), corev1.ConditionTrue}
}

// setReady sets the Pod's condition Ready, as its node would.
func (p *pod) setReady(t *testing.T, status corev1.ConditionStatus) {
	t.Helper()
	p.SetReady(t, status)
	p.status = status
}

// toggleReady inverts the Pod's condition Ready.
func (p *pod) toggleReady(t *testing.T) {
	t.Helper()
	if p.status == corev1.ConditionTrue {
		p.setReady(t, corev1.ConditionFalse)
	} else {
		p.setReady(t, corev1.ConditionTrue)
	}
}
