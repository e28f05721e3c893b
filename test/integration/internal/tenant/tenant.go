package tenant

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// Tenant is the hosted cluster "demo" with its Infra of that name: objects in a namespace of the
// management cluster, and an API server that the control plane's Service leads to.
type Tenant struct {
	*testing.T

	// Management and Hosted are the two clusters, Client and Guest their clients.
	Management, Hosted *lab.ControlPlane
	Client, Guest      client.Client
	// Namespace has the HostedCluster, the Infra and the admin kubeconfig. The hosted control plane's
	// Service is in Namespace-demo.
	Namespace string

	history *history
}

// NewTenant returns a tenant whose API server is that of hosted, which must listen on HostedAddress. The
// Infra's appsIngress is disabled. xdsd control is installed, but not started. When the test ends, the
// tenant's objects in both clusters are deleted, because the next test uses the same clusters.
func (l *Lab) NewTenant(t *testing.T, hosted *lab.ControlPlane) *Tenant {
	t.Helper()
	management := l.Management.Get(t)
	InstallControl(t, management)
	n := &Tenant{
		T: t, Management: management, Hosted: hosted, Client: management.Client(t), Guest: hosted.Client(t),
		Namespace: management.Namespace(t),
	}
	Apply(t, hosted, "apiVersion: v1\nkind: Namespace\nmetadata: {name: openshift-ingress}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: metallb-system}\n")
	Apply(t, management, lab.HostedCluster{Namespace: n.Namespace, Name: "demo", BaseDomain: n.Namespace + ".example.com"}.YAML()+fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-demo}
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
`, n.Namespace))
	n.createAPIServerService()
	n.WriteKubeconfig(n.AdminKubeconfig())
	n.publishKubeconfig()
	n.ApplyInfra("{enabled: false}")
	n.history = n.watchStates()
	t.Cleanup(n.clean)
	return n
}

// NewTenantWithMetalLB returns a tenant in the Lab's hosted cluster, in which MetalLB runs until the
// test ends and assigns the addresses of a pool, as in ApplyPool.
func (l *Lab) NewTenantWithMetalLB(t *testing.T, pool string) *Tenant {
	t.Helper()
	n := l.NewTenant(t, l.Hosted.Get(t))
	if err := n.Hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: Class}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Hosted.KillMetalLB(); err != nil {
			t.Error(err)
		}
	})
	n.ApplyPool(pool)
	return n
}

// Key returns the key of an object in the tenant's namespace.
func (n *Tenant) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: n.Namespace, Name: name}
}

// createAPIServerService creates the Service of the hosted API server, with the server's own address
// as its cluster IP. It is deleted when the test ends, because the next tenant needs that address.
func (n *Tenant) createAPIServerService() {
	n.Helper()
	server, err := url.Parse(n.Hosted.ServerURL())
	if err != nil {
		n.Fatal(err)
	}
	Apply(n.T, n.Management, fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: kube-apiserver, namespace: %s-demo}\nspec: {clusterIP: %s, ports: [{port: %s}]}\n", n.Namespace, server.Hostname(), server.Port()))
	n.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout)
		defer cancel()
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace + "-demo", Name: "kube-apiserver"}}
		if err := client.IgnoreNotFound(n.Client.Delete(ctx, service)); err != nil {
			n.Error(err)
		}
	})
}

// AdminKubeconfig returns the admin kubeconfig as HyperShift writes it, with HostedName as the server.
func (n *Tenant) AdminKubeconfig() []byte {
	n.Helper()
	data, err := lab.HostedCluster{Name: "demo", API: HostedName}.AdminKubeconfig(n.Hosted)
	if err != nil {
		n.Fatal(err)
	}
	return data
}

// WriteKubeconfig creates or updates the Secret of the admin kubeconfig, demo-admin-kubeconfig.
func (n *Tenant) WriteKubeconfig(data []byte) {
	n.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo-admin-kubeconfig"},
		Data:       map[string][]byte{"kubeconfig": data},
	}
	err := n.Client.Create(n.Context(), secret)
	if client.IgnoreAlreadyExists(err) == nil {
		err = n.Client.Update(n.Context(), secret)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// publishKubeconfig names that Secret in the HostedCluster's status.
func (n *Tenant) publishKubeconfig() {
	n.Helper()
	err := n.Management.ApplyStatusYAML(n.Context(), fmt.Appendf(nil,
		"apiVersion: hypershift.openshift.io/v1beta1\nkind: HostedCluster\nmetadata: {name: demo, namespace: %s}\nstatus: {kubeconfig: {name: demo-admin-kubeconfig}}\n", n.Namespace))
	if err != nil {
		n.Fatal(err)
	}
}

// clean deletes the Infra and the HostedCluster, and everything that control creates in the hosted
// cluster.
func (n *Tenant) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout)
	defer cancel()
	hc := &unstructured.Unstructured{}
	hc.SetAPIVersion("hypershift.openshift.io/v1beta1")
	hc.SetKind("HostedCluster")
	for _, o := range []client.Object{&v1alpha1.Infra{}, hc} {
		if err := n.Client.DeleteAllOf(ctx, o, client.InNamespace(n.Namespace)); err != nil {
			n.Error(err)
		}
	}
	for _, o := range []client.Object{&corev1.Service{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		if err := n.Guest.DeleteAllOf(ctx, o, client.InNamespace("openshift-ingress")); err != nil {
			n.Error(err)
		}
	}
}
