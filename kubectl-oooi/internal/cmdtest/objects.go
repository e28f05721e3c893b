package cmdtest

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DeleteSystemNamespace starts the deletion of the namespace oooi-system, and does not wait for it. Setup waits until
// the namespace is deleted, and creates it again.
func (s *Site) DeleteSystemNamespace() {
	s.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "oooi-system"}}
	if err := client.IgnoreNotFound(s.Client.Delete(s.Context(), system)); err != nil {
		s.Fatal(err)
	}
}

// WaitForSystemNamespace waits until the namespace oooi-system, which tests share, exists and is not being deleted.
// It creates the namespace if it does not exist.
func (s *Site) WaitForSystemNamespace() {
	s.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		namespace := &corev1.Namespace{}
		switch err := s.Client.Get(s.Context(), types.NamespacedName{Name: "oooi-system"}, namespace); {
		case apierrors.IsNotFound(err):
			s.Apply(SystemNamespace)
		case err != nil:
			s.Fatal(err)
		case namespace.DeletionTimestamp == nil:
			return
		}
		if time.Now().After(end) {
			s.Fatal("namespace oooi-system is still being deleted")
		}
	}
}

// Images returns the images in the StatefulSets of the site's namespace, by container name.
func (s *Site) Images() map[string]string {
	s.Helper()
	images := map[string]string{}
	var sets appsv1.StatefulSetList
	if err := s.Client.List(s.Context(), &sets, client.InNamespace(s.Namespace)); err != nil {
		s.Fatal(err)
	}
	for i := range sets.Items {
		for _, c := range sets.Items[i].Spec.Template.Spec.Containers {
			images[c.Name] = c.Image
		}
	}
	return images
}

// Grant creates a ClusterRole with the rules, a YAML flow sequence, and binds it to the user.
func (s *Site) Grant(user, rules string) {
	s.Helper()
	s.Apply(fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules: %[2]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`, user, rules))
}

// Pod waits for the first pod of a StatefulSet and returns it.
func (s *Site) Pod(set string) *corev1.Pod {
	s.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		pod := &corev1.Pod{}
		err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: set + "-0"}, pod)
		if err == nil {
			return pod
		}
		if time.Now().After(end) {
			s.Fatalf("StatefulSet %s has no pod: %v", set, err)
		}
	}
}
