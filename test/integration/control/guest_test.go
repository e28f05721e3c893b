package control_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// class is the load balancer class that MetalLB handles in the hosted cluster.
const class = "metallb.io/vlan"

// tenant is a hosted cluster with its Infra: a management cluster whose control-plane
// Service leads to a real API server, in which the real MetalLB runs.
type tenant struct {
	*testing.T

	management, hosted *lab.ControlPlane
	client, guest      client.Client
	namespace          string
	history            *history
}

// newTenant makes one whose Infra does not ask for applications yet.
func newTenant(t *testing.T, hosted *lab.ControlPlane) *tenant {
	t.Helper()
	n := &tenant{T: t, management: loopback.Get(t), hosted: hosted}
	install(t, n.management)
	n.namespace = n.management.Namespace(t)
	n.client, n.guest = n.management.Client(t), hosted.Client(t)
	apply(t, hosted, "apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-ingress}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n")
	server, err := url.Parse(hosted.ServerURL())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, n.management, lab.HostedCluster{Namespace: n.namespace, Name: "demo", BaseDomain: n.namespace + ".example.com"}.YAML()+fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-demo}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: %[1]s-demo}
spec: {type: ExternalName, externalName: unset.example.com}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: oooi-control, namespace: %[1]s}
rules:
- {apiGroups: [""], resources: [secrets], resourceNames: [demo-admin-kubeconfig], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [secrets], resourceNames: [demo-apps-reader], verbs: [get, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: oooi-control, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: oooi-control}
subjects: [{kind: ServiceAccount, name: oooi-control, namespace: oooi-system}]
`, n.namespace))
	n.dial(server.Hostname(), server.Port())
	n.kubeconfig(n.adminKubeconfig())
	n.publish()
	n.infra("{enabled: false}")
	n.history = n.record()
	t.Cleanup(func() { // the hosted cluster may be the next test's
		ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
		defer cancel()
		hc := &unstructured.Unstructured{}
		hc.SetAPIVersion("hypershift.openshift.io/v1beta1")
		hc.SetKind("HostedCluster")
		for _, o := range []client.Object{&v1alpha1.Infra{}, hc} {
			if err := n.client.DeleteAllOf(ctx, o, client.InNamespace(n.namespace)); err != nil {
				t.Error(err)
			}
		}
		for _, o := range []client.Object{&corev1.Service{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
			if err := n.guest.DeleteAllOf(ctx, o, client.InNamespace("openshift-ingress")); err != nil {
				t.Error(err)
			}
		}
	})
	return n
}

// withMetalLB makes a tenant in the shared hosted cluster, in which MetalLB runs with a pool.
func withMetalLB(t *testing.T, pool string) *tenant {
	t.Helper()
	n := newTenant(t, hosted.Get(t))
	if err := n.hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: class}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.hosted.KillMetalLB(); err != nil {
			t.Error(err)
		}
	})
	n.pool(pool)
	return n
}

// dial makes an address that of the control plane's Service.
func (n *tenant) dial(address, port string) {
	n.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace + "-demo", Name: "kube-apiserver"}}
	if err := n.client.Delete(n.Context(), service); err != nil {
		n.Fatal(err)
	}
	apply(n.T, n.management, fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: kube-apiserver, namespace: %s-demo}\nspec: {clusterIP: %s, ports: [{port: %s}]}\n", n.namespace, address, port))
	n.Cleanup(func() { // the address is wanted by the next test
		ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
		defer cancel()
		if err := n.client.Delete(ctx, service); client.IgnoreNotFound(err) != nil {
			n.Error(err)
		}
	})
}

// adminKubeconfig is as HyperShift writes it: with the API server's public name, which
// nothing resolves here.
func (n *tenant) adminKubeconfig() []byte {
	n.Helper()
	data, err := lab.HostedCluster{Name: "demo", API: "api.demo.example.com"}.AdminKubeconfig(n.hosted)
	if err != nil {
		n.Fatal(err)
	}
	return data
}

// kubeconfig puts a kubeconfig where HyperShift does.
func (n *tenant) kubeconfig(data []byte) {
	n.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: "demo-admin-kubeconfig"},
		Data:       map[string][]byte{"kubeconfig": data},
	}
	err := n.client.Create(n.Context(), secret)
	if client.IgnoreAlreadyExists(err) == nil {
		err = n.client.Update(n.Context(), secret)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// publish says in the HostedCluster where the kubeconfig is.
func (n *tenant) publish() {
	n.Helper()
	err := n.management.ApplyStatusYAML(n.Context(), []byte(fmt.Sprintf(
		"apiVersion: hypershift.openshift.io/v1beta1\nkind: HostedCluster\nmetadata: {name: demo, namespace: %s}\nstatus: {kubeconfig: {name: demo-admin-kubeconfig}}\n", n.namespace)))
	if err != nil {
		n.Fatal(err)
	}
}

// infra applies the Infra with its appsIngress.
func (n *tenant) infra(apps string) {
	n.Helper()
	apply(n.T, n.management, fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: %[1]s}
spec:
  hostedClusterRef: {name: demo, namespace: %[1]s}
  networkConfig: {cidr: 192.0.2.0/24, additionalCIDRs: ["2001:db8::/64"], gateway: 192.0.2.1, networkAttachmentDefinition: vlan}
  infraComponents: {proxy: {serverIP: 192.0.2.3}}
  appsIngress: %[2]s
`, n.namespace, apps))
}

// usual is an appsIngress with a pool and the class.
func usual(more string) string {
	return "{enabled: true, metallb: {addressPoolName: vlan, loadBalancerClass: " + class + "}" + more + "}"
}

// pool gives MetalLB addresses.
func (n *tenant) pool(addresses string) {
	n.Helper()
	apply(n.T, n.hosted, fmt.Sprintf("apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: vlan, namespace: metallb-system}\nspec: {addresses: [%s]}\n", addresses))
}

// removePool takes away MetalLB's addresses, and what it has said of them.
func (n *tenant) removePool() {
	n.Helper()
	pool := &unstructured.Unstructured{}
	pool.SetAPIVersion("metallb.io/v1beta1")
	pool.SetKind("IPAddressPool")
	pool.SetNamespace("metallb-system")
	pool.SetName("vlan")
	if err := n.guest.Delete(n.Context(), pool); client.IgnoreNotFound(err) != nil {
		n.Fatal(err)
	}
}

// state returns the state of the applications.
func (n *tenant) state() *v1alpha1.AppsIngressStatus {
	n.Helper()
	infra := &v1alpha1.Infra{}
	if err := n.client.Get(n.Context(), n.key("demo"), infra); err != nil {
		n.Fatal(err)
	}
	return infra.Status.AppsIngress
}

func (n *tenant) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: n.namespace, Name: name}
}

// await waits for a phase, a reason and addresses.
func (n *tenant) await(phase v1alpha1.AppsIngressPhase, reason v1alpha1.AppsIngressReason, message string, addresses ...string) {
	n.Helper()
	await(n.T, fmt.Sprintf("%s %s %v", phase, reason, addresses), func() string {
		s := n.state()
		if s != nil && s.Phase == phase && s.Reason == reason && strings.Contains(s.Message, message) && strings.Join(s.ExternalIPs, " ") == strings.Join(addresses, " ") {
			return ""
		}
		return fmt.Sprintf("%+v", s)
	})
}

// awaitHistory waits until the watch has seen these states, and no other. A watch may be behind
// what a get has shown.
func (n *tenant) awaitHistory(states ...string) {
	n.Helper()
	want := strings.Join(states, "\n")
	await(n.T, "the states to be\n"+want, func() string {
		if got := n.history.String(); got != want {
			return "they are\n" + got
		}
		return ""
	})
}

// service returns the applications' Service.
func (n *tenant) service() *corev1.Service {
	n.Helper()
	service := &corev1.Service{}
	if err := n.guest.Get(n.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, service); err != nil {
		n.Fatal(err)
	}
	return service
}

// assign gives the applications' Service addresses, as a load balancer would, or takes them
// away.
func (n *tenant) assign(addresses ...string) {
	n.Helper()
	await(n.T, "the Service to take its status", func() string {
		s := &corev1.Service{}
		if err := n.guest.Get(n.Context(), client.ObjectKey{Namespace: "openshift-ingress", Name: "demo-apps"}, s); err != nil {
			return err.Error() // not there yet, say
		}
		s.Status.LoadBalancer.Ingress = nil
		for _, a := range addresses {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
		}
		if err := n.guest.Status().Update(n.Context(), s); err != nil {
			return err.Error() // a conflict, say
		}
		return ""
	})
}

// history is every state that a watch has seen, one after the other.
type history struct {
	mu   sync.Mutex
	list []string
}

func (h *history) add(s string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) == 0 || h.list[len(h.list)-1] != s {
		h.list = append(h.list, s)
	}
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.list, "\n")
}

// record watches the Infra until the test ends.
func (n *tenant) record() *history {
	n.Helper()
	dyn, err := dynamic.NewForConfig(n.management.RESTConfig())
	if err != nil {
		n.Fatal(err)
	}
	h := &history{}
	ctx, cancel := context.WithCancel(n.Context())
	events, err := dyn.Resource(v1alpha1.SchemeGroupVersion.WithResource("infras")).Namespace(n.namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		n.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range events.ResultChan() {
			u, ok := e.Object.(runtime.Unstructured)
			if !ok {
				continue
			}
			infra := &v1alpha1.Infra{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), infra); err != nil {
				n.Error(err)
			}
			if s := infra.Status.AppsIngress; s != nil {
				h.add(strings.TrimSpace(fmt.Sprintf("%s %s %s", s.Phase, s.Reason, strings.Join(s.ExternalIPs, " "))))
			} else {
				h.add("none")
			}
		}
	}()
	n.Cleanup(func() {
		events.Stop()
		cancel()
		<-ended
		if n.Failed() {
			n.Logf("the states were\n%s", h)
		}
	})
	return h
}
