package control_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

const (
	pending  = v1alpha1.AppsIngressPending
	ready    = v1alpha1.AppsIngressReady
	degraded = v1alpha1.AppsIngressDegraded
)

func TestApplicationsFromNothingToAnAddressAndBack(t *testing.T) {
	n := newTenant(t, lab.New(t, lab.Config{Name: "hosted", Address: hostedAddress, ServerNames: []string{"api.demo.example.com"}, ServiceCIDR: "172.31.0.0/16"}))
	control := newReplica(t, n.management, "control")
	control.Start(t)

	n.infra(usual(""))
	n.await(pending, v1alpha1.AppsIngressMetalLBMissing, "install it there")
	if err := n.hosted.InstallCRDs(t.Context(), lab.MetalLB); err != nil {
		t.Fatal(err)
	}
	n.await(pending, v1alpha1.AppsIngressPoolMissing, "there is no IPAddressPool")
	if err := n.hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: class}); err != nil {
		t.Fatal(err)
	}
	n.pool("192.0.2.200/32")
	n.await(ready, "", "", "192.0.2.200")
	if s := n.state(); s.ServiceName != "demo-apps" || s.ServiceNamespace != "openshift-ingress" || s.ExternalIP != "192.0.2.200" || s.LastSyncTime == nil {
		t.Errorf("the state is %+v", s)
	}

	// Another address, and none.
	n.pool("192.0.2.210/32")
	n.await(ready, "", "", "192.0.2.210")
	t.Log("changed")

	n.infra("{enabled: false}")
	await(t, "the Service to go", func() string {
		err := n.guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, &corev1.Service{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it is there"
	})
	await(t, "the state to go", func() string {
		if n.state() == nil {
			return ""
		}
		return "it is there"
	})
	for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		if err := n.guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps-reader"}, o); !apierrors.IsNotFound(err) {
			t.Errorf("%T of the reader: %v", o, err)
		}
	}
	if err := n.client.Get(t.Context(), n.key("demo-apps-reader"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("the reader's Secret: %v", err)
	}
	t.Logf("the states were\n%s", n.history)
}
