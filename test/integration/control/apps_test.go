package control_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	if err := n.Hosted.InstallCRDs(t.Context(), lab.MetalLB); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Pending, v1alpha1.AppsIngressPoolMissing, "the hosted cluster has no IPAddressPool")
	if err := n.Hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: tenant.Class}); err != nil {
		t.Fatal(err)
	}
	n.ApplyPool("192.0.2.200/32")
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	if s := n.State(); s.ServiceName != "demo-apps" || s.ServiceNamespace != "openshift-ingress" || s.ExternalIP != "192.0.2.200" || s.LastSyncTime == nil {
		t.Errorf("status.appsIngress is %+v", s)
	}

	n.ApplyPool("192.0.2.210/32")
	n.Await(tenant.Ready, "", "", "192.0.2.210")

	n.ApplyInfra("{enabled: false}")
	lab.Await(t, "the Service to be deleted", func() string {
		err := n.Guest.Get(t.Context(), tenant.ServiceKey(), &corev1.Service{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "it still exists"
	})
	lab.Await(t, "status.appsIngress to be removed", func() string {
		if n.State() == nil {
			return ""
		}
		return "it still exists"
	})
	for _, o := range []client.Object{&corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		if err := n.Guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps-reader"}, o); !apierrors.IsNotFound(err) {
			t.Errorf("%T of the reader: %v", o, err)
		}
	}
	lab.Await(t, "the reader's Secret to be deleted", func() string {
		if err := n.Client.Get(t.Context(), n.Key("demo-apps-reader"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	n.AwaitHistory("none", "Pending AddressNotAssigned", "Pending MetalLBMissing", "Pending PoolMissing",
		"Ready  192.0.2.200", "Ready  192.0.2.210", "none")
}

func TestWithdrawnAddress(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")

	// The address is withdrawn while MetalLB does not run.
	if err := n.Hosted.KillMetalLB(); err != nil {
		t.Fatal(err)
	}
	n.AssignAddresses()
	n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressWithdrawn, "the last address stays in use", "192.0.2.200")
	n.AssignAddresses("192.0.2.200")
	n.Await(tenant.Ready, "", "", "192.0.2.200")

	// The address is withdrawn again: control knows the last valid one from the status.
	n.AssignAddresses()
	n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressWithdrawn, "", "192.0.2.200")
	n.AwaitHistory("none", "Pending AddressNotAssigned", "Ready  192.0.2.200",
		"Degraded AddressWithdrawn 192.0.2.200", "Ready  192.0.2.200", "Degraded AddressWithdrawn 192.0.2.200")
}

func TestPoolWithoutAFreeAddress(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	tenant.Apply(t, n.Hosted, "apiVersion: v1\nkind: Service\nmetadata: {name: greedy, namespace: openshift-ingress}\nspec: {type: LoadBalancer, loadBalancerClass: "+tenant.Class+", ports: [{port: 80}]}\n")
	lab.Await(t, "the other Service to get the only address", func() string {
		s := &corev1.Service{}
		if err := n.Guest.Get(t.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "greedy"}, s); err != nil {
			t.Fatal(err)
		}
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
	deletePool(n)
	n.ApplyPool("192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(", addressDeadline: 3s"))
	n.Await(tenant.Pending, v1alpha1.AppsIngressAddressNotAssigned, "check that MetalLB runs with --lb-class="+tenant.Class)
	n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressNotAssigned, "check that MetalLB runs with --lb-class="+tenant.Class)
	n.ApplyInfra("{enabled: true, addressDeadline: 3s, metallb: {addressPoolName: other, loadBalancerClass: " + tenant.Class + "}}")
	n.Await(tenant.Degraded, v1alpha1.AppsIngressPoolMissing, "IPAddressPool other does not exist in the hosted cluster: create it, or set metallb.addressPoolName to an existing pool: vlan")
}

// TestNamedL2Advertisement tests an Infra that names an L2Advertisement of the user's MetalLB. No speaker runs, so the test
// writes its status.
func TestNamedL2Advertisement(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	announcement := []byte("apiVersion: metallb.io/v1beta1\nkind: ServiceL2Status\n" +
		"metadata: {name: l2-x, namespace: metallb-system, labels: {metallb.io/service-name: demo-apps, metallb.io/service-namespace: openshift-ingress}}\n")
	advertisement := []byte("apiVersion: metallb.io/v1beta1\nkind: L2Advertisement\nmetadata: {name: vlan, namespace: metallb-system}\nspec: {ipAddressPools: [vlan]}\n")
	t.Cleanup(func() {
		for _, yaml := range [][]byte{announcement, advertisement} {
			if err := n.Hosted.DeleteYAML(context.Background(), yaml); err != nil {
				t.Error(err)
			}
		}
	})
	tenant.Apply(t, n.Hosted, string(announcement))
	tenants.NewReplica(t, n.Management, "control").Start(t)
	apps := func(name string) string {
		return "{enabled: true, metallb: {addressPoolName: vlan, l2AdvertisementName: " + name + ", loadBalancerClass: " + tenant.Class + "}}"
	}
	const warning = "L2Advertisement lan does not exist in the hosted cluster: create it"
	n.ApplyInfra(apps("lan"))
	n.Await(tenant.Ready, "", warning, "192.0.2.200")
	lab.Await(t, "the warning in the condition", func() string {
		infra := &v1alpha1.Infra{}
		if err := n.Client.Get(t.Context(), n.Key("demo"), infra); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(infra.Status.Conditions, v1alpha1.ConditionAppsIngressReady)
		if c != nil && c.Status == metav1.ConditionTrue && c.Message == "192.0.2.200; "+warning {
			return ""
		}
		return fmt.Sprintf("%+v", c)
	})
	tenant.Apply(t, n.Hosted, string(advertisement))
	n.ApplyInfra(apps("vlan"))
	lab.Await(t, "the warning to be removed", func() string { return n.State().Message })
}

// TestServiceNamespaceIsOfTheHostedCluster tests an Infra that names a namespace of the management cluster,
// as with the earlier operator.
func TestServiceNamespaceIsOfTheHostedCluster(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(", service: {namespace: clusters-demo}"))
	n.Await(tenant.Degraded, v1alpha1.AppsIngressServiceRejected, "the hosted cluster has no namespace clusters-demo: spec.appsIngress.service.namespace")
	tenant.Apply(t, n.Hosted, "apiVersion: v1\nkind: Namespace\nmetadata: {name: clusters-demo}\n")
	n.Await(tenant.Degraded, v1alpha1.AppsIngressNotAnnounced, "no pod in namespace clusters-demo of the hosted cluster", "192.0.2.200")
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

func TestBothFamilies(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, `192.0.2.200/32, "2001:db8::200/128"`)
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(", service: {ipFamilyPolicy: RequireDualStack}"))
	n.Await(tenant.Ready, "", "", "192.0.2.200", "2001:db8::200")
}

func TestOtherSources(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra("{enabled: true, source: Static, addresses: [192.0.2.77, '2001:db8::77']}")
	n.Await(tenant.Ready, "", "", "192.0.2.77", "2001:db8::77")
	n.ApplyInfra("{enabled: true, source: MirroredService}")
	n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressWithdrawn, "the management cluster has no mirrored Service", "192.0.2.77", "2001:db8::77")
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
	if err := n.Guest.Update(t.Context(), s, client.FieldOwner("other-client")); err != nil {
		t.Fatal(err)
	}
	lab.Await(t, "the Service to be corrected", check)

	// A deleted Service is created again.
	uid := n.Service().UID
	if err := n.Guest.Delete(t.Context(), n.Service()); err != nil {
		t.Fatal(err)
	}
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
	lab.Await(t, "the old Service to be deleted", func() string {
		if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), &corev1.Service{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	if s := n.State(); s.ServiceName != "web" {
		t.Errorf("status.appsIngress has serviceName %s", s.ServiceName)
	}
}

func TestForeignServiceIsNotChanged(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenant.Apply(t, n.Hosted, "apiVersion: v1\nkind: Service\nmetadata: {name: demo-apps, namespace: openshift-ingress}\nspec: {ports: [{port: 8080}]}\n")
	before := n.Service().ResourceVersion
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Degraded, v1alpha1.AppsIngressServiceForeign, "hand it over with the annotation hostedcluster.densityops.com/infra: "+n.Namespace+"/demo")
	n.ApplyInfra("{enabled: false}")
	lab.Await(t, "status.appsIngress to be removed", func() string {
		if s := n.State(); s != nil {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if after := n.Service().ResourceVersion; after != before {
		t.Errorf("the foreign Service was changed: resourceVersion %s, was %s", after, before)
	}
	// With the annotation control adopts it.
	s := n.Service()
	s.Annotations = map[string]string{"hostedcluster.densityops.com/infra": n.Namespace + "/demo"}
	s.ResourceVersion = "" // other clients write the status meanwhile
	if err := n.Guest.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

// TestAnotherInfraTakesOver disables the apps ingress of an Infra while another one of the same hosted cluster enables it.
func TestAnotherInfraTakesOver(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	tenant.Apply(t, n.Management, fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: next, namespace: %[1]s}
spec:
  hostedClusterRef: {name: demo, namespace: %[1]s}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}
  infraComponents: {proxy: {serverIP: 192.0.2.4}}
  appsIngress: %[2]s
`, n.Namespace, tenant.AppsIngress("")))
	n.ApplyInfra("{enabled: false}")
	lab.Await(t, "the Service to belong to the other Infra", func() string {
		s := &corev1.Service{}
		if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), s); err != nil || s.Annotations[v1alpha1.AnnotationInfra] != n.Namespace+"/next" {
			return fmt.Sprintf("%v, error %v", s.Annotations, err)
		}
		return ""
	})
	lab.Await(t, "the reader's Secret of the first Infra to be deleted", func() string {
		if err := n.Client.Get(t.Context(), n.Key("demo-apps-reader"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// TestAddressesOutsideTheAllowedRangeAreRejected sets addresses in the Service's status, which the owner of
// the hosted cluster can do.
func TestAddressesOutsideTheAllowedRangeAreRejected(t *testing.T) {
	n := tenants.NewTenant(t, tenants.Hosted.Get(t))
	deletePool(n) // its status may still say that it is full, because MetalLB does not run here
	n.ApplyPool("192.0.2.96/29")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Pending, v1alpha1.AppsIngressAddressNotAssigned, "")
	for _, address := range []string{"169.254.169.254", "127.0.0.1", "127.96.0.1", "10.96.0.1", "198.51.100.7", "192.0.2.3", "192.0.2.1", "::1", "224.0.0.1"} {
		n.AssignAddresses(address)
		n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressNotAllowed, address)
	}
	n.AssignAddresses("192.0.2.99")
	n.Await(tenant.Ready, "", "", "192.0.2.99")
	n.AssignAddresses("169.254.169.254")
	n.Await(tenant.Degraded, v1alpha1.AppsIngressAddressNotAllowed, "169.254.169.254", "192.0.2.99")
}

// deletePool deletes MetalLB's pool and with it the pool's status.
func deletePool(n *tenant.Tenant) {
	n.Helper()
	pool := &unstructured.Unstructured{}
	pool.SetAPIVersion("metallb.io/v1beta1")
	pool.SetKind("IPAddressPool")
	pool.SetNamespace("metallb-system")
	pool.SetName("vlan")
	if err := n.Guest.Delete(n.Context(), pool); client.IgnoreNotFound(err) != nil {
		n.Fatal(err)
	}
}
