package cmdtest

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// Must ends the test if an operation failed.
func (s *Site) Must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// Get reads an object in the site's namespace.
func (s *Site) Get(name string, into client.Object) {
	s.Helper()
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: name}, into))
}

// CreateForTest creates an object, and deletes it when the test ends.
func (s *Site) CreateForTest(o client.Object) {
	s.Helper()
	s.Must(s.Client.Create(s.Context(), o))
	s.Cleanup(func() {
		if err := s.Client.Delete(s.AfterTest(), o); err != nil {
			s.Error(err)
		}
	})
}

// As makes the following command lines run as a user.
func (s *Site) As(user string) {
	s.Helper()
	kubeconfig, err := s.ControlPlane.UserKubeconfig(user)
	s.Must(err)
	s.Kubeconfig = kubeconfig
}

// Object returns an object in the site's namespace.
func (s *Site) Object(kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	s.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	s.Get(name, u)
	return u
}

// DeleteSystemNamespace starts the deletion of the namespace oooi-system, and does not wait for it. Setup waits until
// the namespace is deleted, and creates it again.
func (s *Site) DeleteSystemNamespace() {
	s.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "oooi-system"}}
	s.Must(client.IgnoreNotFound(s.Client.Delete(s.Context(), system)))
}

// WaitForSystemNamespace waits until the namespace oooi-system, which tests share, exists and is not being deleted.
// It creates the namespace if it does not exist.
func (s *Site) WaitForSystemNamespace() {
	s.Helper()
	lab.Poll(s, "namespace oooi-system", func() bool {
		namespace := &corev1.Namespace{}
		err := s.Client.Get(s.Context(), types.NamespacedName{Name: "oooi-system"}, namespace)
		if apierrors.IsNotFound(err) {
			s.Apply(SystemNamespace)
			return false
		}
		s.Must(err)
		return namespace.DeletionTimestamp == nil
	})
}

// Images returns the images in the StatefulSets of the site's namespace, by container name.
func (s *Site) Images() map[string]string {
	s.Helper()
	images := map[string]string{}
	var sets appsv1.StatefulSetList
	s.Must(s.Client.List(s.Context(), &sets, client.InNamespace(s.Namespace)))
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
	pod := &corev1.Pod{}
	lab.Poll(s, "pod "+set+"-0", func() bool {
		err := s.Client.Get(s.Context(), client.ObjectKey{Namespace: s.Namespace, Name: set + "-0"}, pod)
		s.Must(client.IgnoreNotFound(err))
		return err == nil
	})
	return pod
}
