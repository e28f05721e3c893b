package control_test

import (
	"fmt"
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

	n.pool("192.0.2.210/32")
	n.await(ready, "", "", "192.0.2.210")

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
	await(t, "the reader's Secret to go", func() string {
		if err := n.client.Get(t.Context(), n.key("demo-apps-reader"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	n.awaitHistory("none", "Pending AddressNotAssigned", "Pending MetalLBMissing", "Pending PoolMissing",
		"Ready  192.0.2.200", "Ready  192.0.2.210", "none")
}

func TestAddressesComeAndGo(t *testing.T) {
	n := withMetalLB(t, "192.0.2.200/32")
	newReplica(t, n.management, "control").Start(t)
	n.infra(usual(""))
	n.await(ready, "", "", "192.0.2.200")

	// MetalLB is gone, and somebody takes the address away.
	if err := n.hosted.KillMetalLB(); err != nil {
		t.Fatal(err)
	}
	n.assign()
	n.await(degraded, v1alpha1.AppsIngressAddressWithdrawn, "the last address stays in use", "192.0.2.200")
	n.assign("192.0.2.200")
	n.await(ready, "", "", "192.0.2.200")

	// A control that was not there meanwhile knows the last good one from the status.
	n.assign()
	n.await(degraded, v1alpha1.AppsIngressAddressWithdrawn, "", "192.0.2.200")
	n.awaitHistory("none", "Pending AddressNotAssigned", "Ready  192.0.2.200",
		"Degraded AddressWithdrawn 192.0.2.200", "Ready  192.0.2.200", "Degraded AddressWithdrawn 192.0.2.200")
}

func TestPoolWithoutAFreeAddress(t *testing.T) {
	n := withMetalLB(t, "192.0.2.200/32")
	newReplica(t, n.management, "control").Start(t)
	apply(t, n.hosted, "apiVersion: v1\nkind: Service\nmetadata: {name: greedy, namespace: openshift-ingress}\nspec: {type: LoadBalancer, loadBalancerClass: "+class+", ports: [{port: 80}]}\n")
	await(t, "the other Service to have the only address", func() string {
		s := &corev1.Service{}
		if err := n.guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "greedy"}, s); err != nil {
			t.Fatal(err)
		}
		if len(s.Status.LoadBalancer.Ingress) == 1 {
			return ""
		}
		return "it has none"
	})
	n.infra(usual(""))
	n.await(degraded, v1alpha1.AppsIngressPoolExhausted, "no address is free in IPAddressPool vlan")
	n.pool("192.0.2.200/31")
	n.await(ready, "", "", "192.0.2.201")
}

func TestNobodyAssignsUntilTheDeadline(t *testing.T) {
	n := newTenant(t, hosted.Get(t))
	n.removePool()
	n.pool("192.0.2.200/32")
	newReplica(t, n.management, "control").Start(t)
	n.infra(usual(", addressDeadline: 3s"))
	n.await(pending, v1alpha1.AppsIngressAddressNotAssigned, "does MetalLB run with --lb-class="+class)
	n.await(degraded, v1alpha1.AppsIngressAddressNotAssigned, "does MetalLB run with --lb-class="+class)
	n.infra("{enabled: true, addressDeadline: 3s, metallb: {addressPoolName: other, loadBalancerClass: " + class + "}}")
	n.await(degraded, v1alpha1.AppsIngressPoolMissing, "IPAddressPool other does not exist in the hosted cluster; there are vlan")
}

// TestTheServicesNamespaceIsTheHostedClusters has a namespace of the management cluster in the Infra, as
// the plans of the operator before had it.
func TestTheServicesNamespaceIsTheHostedClusters(t *testing.T) {
	n := withMetalLB(t, "192.0.2.200/32")
	newReplica(t, n.management, "control").Start(t)
	n.infra(usual(", service: {namespace: clusters-demo}"))
	n.await(degraded, v1alpha1.AppsIngressServiceRejected, "the hosted cluster has no namespace clusters-demo: spec.appsIngress.service.namespace")
	apply(t, n.hosted, "apiVersion: v1\nkind: Namespace\nmetadata: {name: clusters-demo}\n")
	n.await(degraded, v1alpha1.AppsIngressNotAnnounced, "no pod in namespace clusters-demo of the hosted cluster", "192.0.2.200")
	n.infra(usual(""))
	n.await(ready, "", "", "192.0.2.200")
}

func TestBothFamilies(t *testing.T) {
	n := withMetalLB(t, `192.0.2.200/32, "2001:db8::200/128"`)
	newReplica(t, n.management, "control").Start(t)
	n.infra(usual(", service: {ipFamilyPolicy: RequireDualStack}"))
	n.await(ready, "", "", "192.0.2.200", "2001:db8::200")
}

func TestOtherSources(t *testing.T) {
	n := withMetalLB(t, "192.0.2.200/32")
	newReplica(t, n.management, "control").Start(t)
	n.infra("{enabled: true, source: Static, addresses: [192.0.2.77, '2001:db8::77']}")
	n.await(ready, "", "", "192.0.2.77", "2001:db8::77")
	n.infra("{enabled: true, source: MirroredService}")
	n.await(degraded, v1alpha1.AppsIngressAddressWithdrawn, "the management cluster has no Service", "192.0.2.77", "2001:db8::77")
	if err := n.guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, &corev1.Service{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Service in the hosted cluster that nobody wants: %v", err)
	}
	// On KubeVirt a Service without a class has two masters.
	n.infra("{enabled: true}")
	n.await(degraded, v1alpha1.AppsIngressControllerConflict, "metallb.loadBalancerClass", "192.0.2.77", "2001:db8::77")
}

func TestTheServiceIsKeptAsItShouldBe(t *testing.T) {
	n := withMetalLB(t, "192.0.2.200/32")
	newReplica(t, n.management, "control").Start(t)
	n.infra(usual(", ports: {https: 8443}, service: {annotations: {example.com/a: b}, externalTrafficPolicy: Local}"))
	n.await(ready, "", "", "192.0.2.200")
	asWanted := func() string {
		s := n.service()
		if s.Spec.Selector["ingresscontroller.operator.openshift.io/deployment-ingresscontroller"] == "default" && len(s.Spec.Selector) == 1 &&
			len(s.Spec.Ports) == 2 && s.Spec.Ports[0].Port == 80 && s.Spec.Ports[1].Port == 8443 && s.Spec.Ports[1].TargetPort.StrVal == "https" &&
			s.Annotations["example.com/a"] == "b" && s.Annotations["metallb.io/address-pool"] == "vlan" && s.Annotations["metallb.universe.tf/address-pool"] == "vlan" &&
			*s.Spec.LoadBalancerClass == class && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			return ""
		}
		return fmt.Sprintf("%+v %+v", s.Annotations, s.Spec)
	}
	if why := asWanted(); why != "" {
		t.Error(why)
	}

	// Drift, by somebody who means well.
	s := n.service()
	s.Spec.Selector = map[string]string{"app": "mine"}
	s.Spec.Ports[1].Port = 443
	delete(s.Annotations, "metallb.io/address-pool")
	if err := n.guest.Update(t.Context(), s, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	await(t, "the Service to be as wanted again", asWanted)

	// Deleted, and made anew.
	uid := n.service().UID
	if err := n.guest.Delete(t.Context(), n.service()); err != nil {
		t.Fatal(err)
	}
	await(t, "a new Service", func() string {
		s := &corev1.Service{}
		if err := n.guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, s); err != nil || s.UID == uid {
			return fmt.Sprintf("it is %s, %v", s.UID, err)
		}
		return ""
	})
	n.await(ready, "", "", "192.0.2.200")

	// Another name: the old one goes.
	n.infra(usual(", service: {name: web}"))
	await(t, "the old Service to go", func() string {
		if err := n.guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, &corev1.Service{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	n.await(ready, "", "", "192.0.2.200")
	if s := n.state(); s.ServiceName != "web" {
		t.Errorf("the state names %s", s.ServiceName)
	}
}

func TestAServiceOfSomebodyElseIsLeftAlone(t *testing.T) {
	n := withMetalLB(t, "192.0.2.200/32")
	apply(t, n.hosted, "apiVersion: v1\nkind: Service\nmetadata: {name: demo-apps, namespace: openshift-ingress}\nspec: {ports: [{port: 8080}]}\n")
	before := n.service().ResourceVersion
	newReplica(t, n.management, "control").Start(t)
	n.infra(usual(""))
	n.await(degraded, v1alpha1.AppsIngressServiceForeign, "hand it over with the annotation hostedcluster.densityops.com/infra: "+n.namespace+"/demo")
	n.infra("{enabled: false}")
	await(t, "the state to go", func() string {
		if s := n.state(); s != nil {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if after := n.service().ResourceVersion; after != before {
		t.Errorf("it was touched: %s, %s", before, after)
	}
	// Handed over, it is ours.
	s := n.service()
	s.Annotations = map[string]string{"hostedcluster.densityops.com/infra": n.namespace + "/demo"}
	if err := n.guest.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	n.infra(usual(""))
	n.await(ready, "", "", "192.0.2.200")
}

// A tenant owns his cluster, and with it the Service's status.
func TestWhatATenantSaysIsNotBelieved(t *testing.T) {
	n := newTenant(t, hosted.Get(t))
	n.removePool() // of which MetalLB, that does not run here, may have said that it is full
	n.pool("192.0.2.96/29")
	newReplica(t, n.management, "control").Start(t)
	n.infra(usual(""))
	n.await(pending, v1alpha1.AppsIngressAddressNotAssigned, "")
	for _, address := range []string{"169.254.169.254", "127.0.0.1", "127.96.0.1", "10.96.0.1", "198.51.100.7", "192.0.2.3", "192.0.2.1", "::1", "224.0.0.1"} {
		n.assign(address)
		n.await(degraded, v1alpha1.AppsIngressAddressNotAllowed, address)
	}
	n.assign("192.0.2.99")
	n.await(ready, "", "", "192.0.2.99")
	n.assign("169.254.169.254")
	n.await(degraded, v1alpha1.AppsIngressAddressNotAllowed, "169.254.169.254", "192.0.2.99")
}
