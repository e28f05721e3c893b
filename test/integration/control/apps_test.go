package control_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

func TestAppsIngressLifecycle(t *testing.T) {
	n := tenants.NewTenant(t, lab.New(t, lab.Config{Name: "hosted", Address: tenant.HostedAddress, ServerNames: []string{tenant.HostedName}, ServiceCIDR: "172.31.0.0/16"}))
	control := tenants.NewReplica(t, n.Management, "control")
	control.Start(t)

	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Pending, v1alpha1.AppsIngressMetalLBMissing, "install it there")
	lab.Must(t, n.Hosted.InstallCRDs(t.Context(), lab.MetalLB))
	n.Await(tenant.Pending, v1alpha1.AppsIngressPoolMissing, "the hosted cluster lacks an IPAddressPool")
	lab.Must(t, n.Hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: tenant.Class}))
	n.ApplyPool("192.0.2.200/32")
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	if s := n.State(); s.ServiceName != "demo-apps" || s.ServiceNamespace != "openshift-ingress" || s.ExternalIP != "192.0.2.200" || s.LastSyncTime == nil {
		t.Errorf("status.appsIngress is %+v", s)
	}

	n.ApplyPool("192.0.2.210/32")
	n.Await(tenant.Ready, "", "", "192.0.2.210")

	n.ApplyInfra("{enabled: false}")
	n.AwaitNoService()
	lab.Poll(t, "status.appsIngress to be removed", func() bool { return n.State() == nil })
	for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		if err := n.Guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps-reader"}, o); !apierrors.IsNotFound(err) {
			t.Errorf("%T of the reader: %v", o, err)
		}
	}
	n.AwaitNoReader()
	n.AwaitHistory("none", "Pending AddressNotAssigned", "Pending MetalLBMissing", "Pending PoolMissing",
		"Ready  192.0.2.200", "Ready  192.0.2.210", "none")
}

func TestPoolWithoutAFreeAddress(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.Hosted.MustApply(t, lab.LoadBalancer("openshift-ingress", "greedy", "spec: {loadBalancerClass: "+tenant.Class+"}"))
	lab.Await(t, "the other Service to get the only address", func() string {
		s := &corev1.Service{}
		lab.Must(t, n.Guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "greedy"}, s))
		if len(s.Status.LoadBalancer.Ingress) == 1 {
			return ""
		}
		return "no address"
	})
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Degraded, v1alpha1.AppsIngressPoolExhausted, "no free address in IPAddressPool vlan")
	n.ApplyPool("192.0.2.200/31")
	n.Await(tenant.Ready, "", "", "192.0.2.201")
}

func TestAddressDeadline(t *testing.T) {
	n := tenants.NewTenant(t, tenants.Hosted.Get(t))
	// With its status, which may say that it is full, because MetalLB does not run here.
	lab.Must(t, n.Hosted.DeleteYAML(t.Context(), []byte("{apiVersion: metallb.io/v1beta1, kind: IPAddressPool, metadata: {name: vlan, namespace: metallb-system}}")))
	n.ApplyPool("192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(", addressDeadline: 3s"))
	n.Await(tenant.Pending, v1alpha1.AppsIngressAddressNotAssigned, "check that MetalLB runs with --lb-class="+tenant.Class)
	n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressNotAssigned, "check that MetalLB runs with --lb-class="+tenant.Class)
	n.ApplyInfra("{enabled: true, addressDeadline: 3s, metallb: {addressPoolName: other, loadBalancerClass: " + tenant.Class + "}}")
	n.Await(tenant.Degraded, v1alpha1.AppsIngressPoolMissing, "IPAddressPool other does not exist in the hosted cluster; create it, or set metallb.addressPoolName to an existing pool: vlan")
}

// TestServiceNamespaceIsInHostedCluster tests an Infra that names a namespace of the management cluster,
// as with the earlier operator.
func TestServiceNamespaceIsInHostedCluster(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(", service: {namespace: clusters-demo}"))
	n.Await(tenant.Degraded, v1alpha1.AppsIngressServiceRejected, "the hosted cluster lacks namespace clusters-demo: spec.appsIngress.service.namespace")
	n.Hosted.MustApply(t, lab.Namespaces("clusters-demo"))
	n.Await(tenant.Degraded, v1alpha1.AppsIngressNotAnnounced, "no pod in namespace clusters-demo of the hosted cluster", "192.0.2.200")
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

func TestOtherSources(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra("{enabled: true, source: Static, addresses: [192.0.2.77, '2001:db8::77']}")
	n.Await(tenant.Ready, "", "", "192.0.2.77", "2001:db8::77")
	n.ApplyInfra("{enabled: true, source: MirroredService}")
	n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressWithdrawn, "the management cluster lacks mirrored Service", "192.0.2.77", "2001:db8::77")
	if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), &corev1.Service{}); !apierrors.IsNotFound(err) {
		t.Errorf("Service of another source still exists in the hosted cluster: %v", err)
	}
	// On KubeVirt two controllers would handle a Service without a class.
	n.ApplyInfra("{enabled: true}")
	n.Await(tenant.Degraded, v1alpha1.AppsIngressControllerConflict, "metallb.loadBalancerClass", "192.0.2.77", "2001:db8::77")
}

func TestServiceIsReconciled(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(", ports: {https: 8443}, service: {annotations: {example.com/a: b}, externalTrafficPolicy: Local}"))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	check := func() string {
		s := n.Service()
		if s.Spec.Selector["ingresscontroller.operator.openshift.io/deployment-ingresscontroller"] == "default" && len(s.Spec.Selector) == 1 &&
			len(s.Spec.Ports) == 2 && s.Spec.Ports[0].Port == 80 && s.Spec.Ports[1].Port == 8443 && s.Spec.Ports[1].TargetPort.StrVal == "https" &&
			s.Annotations["example.com/a"] == "b" && s.Annotations["metallb.io/address-pool"] == "vlan" && s.Annotations["metallb.universe.tf/address-pool"] == "vlan" &&
			*s.Spec.LoadBalancerClass == tenant.Class && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
			return ""
		}
		return fmt.Sprintf("%+v %+v", s.Annotations, s.Spec)
	}
	if problem := check(); problem != "" {
		t.Error(problem)
	}

	// Another client changes the Service.
	s := n.Service()
	s.Spec.Selector = map[string]string{"app": "mine"}
	s.Spec.Ports[1].Port = 443
	delete(s.Annotations, "metallb.io/address-pool")
	s.ResourceVersion = "" // other clients write the status meanwhile
	lab.Must(t, n.Guest.Update(t.Context(), s, client.FieldOwner("other-client")))
	lab.Await(t, "the Service to be corrected", check)

	// A deleted Service is created again.
	uid := n.Service().UID
	lab.Must(t, n.Guest.Delete(t.Context(), n.Service()))
	lab.Await(t, "a new Service", func() string {
		s := &corev1.Service{}
		if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), s); err != nil || s.UID == uid {
			return fmt.Sprintf("UID %s, error %v", s.UID, err)
		}
		return ""
	})
	n.Await(tenant.Ready, "", "", "192.0.2.200")

	// A Service with another name replaces the old one.
	n.ApplyInfra(tenant.AppsIngress(", service: {name: web}"))
	n.AwaitNoService()
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	if s := n.State(); s.ServiceName != "web" {
		t.Errorf("status.appsIngress has serviceName %s", s.ServiceName)
	}
}

func TestForeignServiceIsNotChanged(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	n.Hosted.MustApply(t, lab.Service("openshift-ingress", "demo-apps", 8080))
	before := n.Service().ResourceVersion
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Degraded, v1alpha1.AppsIngressServiceForeign, "hand it over with the annotation hostedcluster.densityops.com/infra: "+n.Namespace+"/demo")
	n.ApplyInfra("{enabled: false}")
	lab.Poll(t, "status.appsIngress to be removed", func() bool { return n.State() == nil })
	if after := n.Service().ResourceVersion; after != before {
		t.Errorf("the foreign Service was changed: resourceVersion %s, was %s", after, before)
	}
	// With the annotation control adopts it.
	s := n.Service()
	s.Annotations = map[string]string{"hostedcluster.densityops.com/infra": n.Namespace + "/demo"}
	s.ResourceVersion = "" // other clients write the status meanwhile
	lab.Must(t, n.Guest.Update(t.Context(), s))
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

// TestAnotherInfraTakesOver disables the apps ingress of an Infra while another one of the same hosted cluster enables it.
func TestAnotherInfraTakesOver(t *testing.T) {
	n, _ := tenants.NewReadyTenant(t)
	n.Management.MustApply(t, n.Infra("metadata: {name: next}", "spec: {infraComponents: {proxy: {serverIP: 192.0.2.4}}, appsIngress: "+tenant.AppsIngress("")+"}"))
	n.ApplyInfra("{enabled: false}")
	lab.Await(t, "the Service to belong to the other Infra", func() string {
		s := &corev1.Service{}
		if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), s); err != nil || s.Annotations[v1alpha1.AnnotationInfra] != n.Namespace+"/next" {
			return fmt.Sprintf("%v, error %v", s.Annotations, err)
		}
		return ""
	})
	n.AwaitNoReader()
}
