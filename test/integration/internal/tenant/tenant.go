package tenant

import (
	"context"
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// NewTenant returns a tenant with the API server of hosted, which must listen on HostedAddress. The
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
	hosted.MustApply(t, lab.Namespaces("openshift-ingress", "metallb-system"))
	management.MustApply(t, lab.Namespaces(n.Namespace+"-demo"), n.Site().HostedCluster().YAML(),
		lab.Role(n.Namespace, "oooi-control", "system:serviceaccount:oooi-system:oooi-control",
			`{apiGroups: [""], resources: [secrets], resourceNames: [demo-admin-kubeconfig], verbs: [get, list, watch]}`,
			`{apiGroups: [""], resources: [secrets], resourceNames: [demo-apps-reader], verbs: [get, create, patch, delete]}`))
	n.createAPIServerService()
	n.WriteKubeconfig(n.AdminKubeconfig())
	if err := management.ApplyStatusYAML(t.Context(), []byte(lab.Merge(n.Site().HostedCluster().YAML(), "{spec: null, status: {kubeconfig: {name: demo-admin-kubeconfig}}}"))); err != nil {
		t.Fatal(err)
	}
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
	lab.Must(t, n.Hosted.StartMetalLB(t.Context(), lab.MetalLBConfig{LoadBalancerClass: Class}))
	t.Cleanup(func() {
		lab.Report(t, n.Hosted.KillMetalLB())
	})
	n.ApplyPool(pool)
	return n
}

// NewReadyTenant returns a tenant of NewTenantWithMetalLB whose apps ingress is enabled and has the address 192.0.2.200, and the
// running control.
func (l *Lab) NewReadyTenant(t *testing.T) (*Tenant, *lab.Replica) {
	t.Helper()
	n := l.NewTenantWithMetalLB(t, "192.0.2.200/32")
	control := l.NewReplica(t, n.Management, "control")
	control.Start(t)
	n.ApplyInfra(AppsIngress(""))
	n.Await(Ready, "", "", "192.0.2.200")
	return n, control
}

// Key returns the key of an object in the tenant's namespace.
func (n *Tenant) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: n.Namespace, Name: name}
}

// Site has the names of the tenant's objects.
func (n *Tenant) Site() lab.Site {
	return lab.Site{Namespace: n.Namespace, BaseDomain: n.Namespace + ".example.com"}
}

// createAPIServerService creates the Service of the hosted API server, with the server's own address
// as its cluster IP. It is deleted when the test ends, because the next tenant needs that address.
func (n *Tenant) createAPIServerService() {
	n.Helper()
	server, err := url.Parse(n.Hosted.ServerURL())
	lab.Must(n, err)
	n.Management.Create(n.T, lab.Service(n.Namespace+"-demo", "kube-apiserver", 0, "spec: {clusterIP: "+server.Hostname()+", ports: [{port: "+server.Port()+"}]}"))
}

// AdminKubeconfig returns the admin kubeconfig as HyperShift writes it, with HostedName as the server.
func (n *Tenant) AdminKubeconfig() []byte {
	n.Helper()
	data, err := lab.HostedCluster{Name: "demo", API: HostedName}.AdminKubeconfig(n.Hosted)
	lab.Must(n, err)
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
	lab.Must(n, err)
}

// clean deletes the Infra and the HostedCluster, and everything that control creates in the hosted
// cluster.
func (n *Tenant) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout)
	defer cancel()
	lab.Report(n, n.Client.DeleteAllOf(ctx, &v1alpha1.Infra{}, client.InNamespace(n.Namespace)))
	lab.Report(n, n.Management.DeleteYAML(ctx, []byte(n.Site().HostedCluster().YAML())))
	for _, o := range []client.Object{&corev1.Service{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		lab.Report(n, n.Guest.DeleteAllOf(ctx, o, client.InNamespace("openshift-ingress")))
	}
}
