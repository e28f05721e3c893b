package lab

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Client returns an administrator's client, whose scheme has the kinds of Kubernetes, Gateway API and this project.
func (cp *ControlPlane) Client(tb testing.TB) client.Client {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, gatewayv1.Install, v1alpha1.AddToScheme} {
		Must(tb, add(scheme))
	}
	c, err := client.New(cp.RESTConfig(), client.Options{Scheme: scheme})
	Must(tb, err)
	return c
}

// Kube returns an administrator's typed clients.
func (cp *ControlPlane) Kube(tb testing.TB) *kubernetes.Clientset {
	tb.Helper()
	kube, err := kubernetes.NewForConfig(cp.RESTConfig())
	Must(tb, err)
	return kube
}

// AwaitDeleted waits until an object does not exist. Only its type, namespace and name are used.
func AwaitDeleted(tb testing.TB, c client.Client, o client.Object) {
	tb.Helper()
	key := client.ObjectKeyFromObject(o)
	Await(tb, fmt.Sprintf("%T %s to be deleted", o, key), func() string {
		if err := c.Get(tb.Context(), key, o); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("error %v", err)
		}
		return ""
	})
}

// AssignAddresses sets the addresses in the status of a Service, as a load balancer does, or removes them. It waits for the Service.
func AssignAddresses(tb testing.TB, c client.Client, namespace, name string, addresses ...string) {
	tb.Helper()
	Await(tb, fmt.Sprintf("the status of Service %s/%s to be updated", namespace, name), func() string {
		s := &corev1.Service{}
		if err := c.Get(tb.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
			return err.Error() // not created yet, for example
		}
		s.Status.LoadBalancer.Ingress = nil
		for _, a := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		if err := c.Status().Update(tb.Context(), s); err != nil {
			return err.Error() // a conflict, for example
		}
		return ""
	})
}
