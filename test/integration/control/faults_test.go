package control_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// TestKubeconfigsThatAreNotFollowed puts in place of the administrator's kubeconfig what an
// attacker, or a mistake, could put there. Control names each, keeps the address, and
// comes back without a restart.
func TestKubeconfigsThatAreNotFollowed(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	good := n.AdminKubeconfig()
	changed := func(change func(*clientcmdapi.Config)) []byte {
		config, err := clientcmd.Load(good)
		if err != nil {
			t.Fatal(err)
		}
		change(config)
		data, err := clientcmd.Write(*config)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	user := func(change func(*clientcmdapi.AuthInfo)) []byte {
		return changed(func(c *clientcmdapi.Config) {
			for _, u := range c.AuthInfos {
				change(u)
			}
		})
	}
	cluster := func(change func(*clientcmdapi.Cluster)) []byte {
		return changed(func(c *clientcmdapi.Config) {
			for _, u := range c.Clusters {
				change(u)
			}
		})
	}
	stranger, err := n.Hosted.UserKubeconfig("stranger")
	if err != nil {
		t.Fatal(err)
	}
	powerless, err := clientcmd.LoadFromFile(stranger)
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := clientcmd.Write(*powerless)
	if err != nil {
		t.Fatal(err)
	}
	nobody = bytes.ReplaceAll(nobody, []byte(n.Hosted.ServerURL()), []byte("https://"+tenant.HostedName+":6443"))
	const rejected, missing = v1alpha1.AppsIngressKubeconfigRejected, v1alpha1.AppsIngressKubeconfigMissing
	for _, tc := range []struct {
		name    string
		data    []byte
		reason  v1alpha1.AppsIngressReason
		message string
	}{
		{"a command", user(func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/true", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}), rejected, "exec"},
		{"an auth provider", user(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} }), rejected, "auth-provider"},
		{"a file", user(func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/etc/passwd" }), rejected, "tokenFile"},
		{"somebody else", user(func(u *clientcmdapi.AuthInfo) { u.Impersonate = "root" }), rejected, "as"},
		{"a proxy", cluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://192.0.2.66" }), rejected, "proxy-url"},
		{"no check of the server", cluster(func(c *clientcmdapi.Cluster) { c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil }), rejected, "insecure-skip-tls-verify"},
		{"nonsense", []byte("]["), rejected, "invalid kubeconfig"},
		{"nothing", nil, missing, "has no key"},
		{"another authority", cluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = tenants.Management.Get(t).CA() }), v1alpha1.AppsIngressHostedClusterUnreachable, "certificate"},
		{"somebody without rights", nobody, v1alpha1.AppsIngressHostedClusterForbidden, "stranger"},
	} {
		n.WriteKubeconfig(tc.data)
		t.Log(tc.name)
		n.Await(tenant.Degraded, tc.reason, tc.message, "192.0.2.200")
		if strings.Contains(n.State().Message, "BEGIN") {
			t.Errorf("%s: the message shows keys: %s", tc.name, n.State().Message)
		}
	}
	// By URL it is the kubeconfig's host that counts: nobody is there, or nothing comes back.
	n.ApplyInfra(tenant.AppsIngress(", dial: URL"))
	for _, host := range []string{"127.255.255.253", "203.0.113.7"} {
		n.WriteKubeconfig(cluster(func(c *clientcmdapi.Cluster) { c.Server = "https://" + host + ":6443" }))
		n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, host, "192.0.2.200")
	}
	n.WriteKubeconfig(good)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	if err := n.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo-admin-kubeconfig"}}); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Degraded, missing, "demo-admin-kubeconfig", "192.0.2.200")
	n.WriteKubeconfig(good)
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

func TestTheHostedClusterIsAway(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	control := tenants.NewReplica(t, n.Management, "control")
	control.Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	if err := n.Hosted.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, "cannot be reached", "192.0.2.200")

	// Control itself, restarted meanwhile, knows no more than the status says.
	control.Kill(t)
	control.Start(t)
	control.AwaitReady(t)
	n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, "cannot be reached", "192.0.2.200")

	// It comes back with another certificate, of the same authority.
	if err := n.Hosted.RenewCertificate(); err != nil {
		t.Fatal(err)
	}
	if err := n.Hosted.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

// TestReaderCanDoNothingElse tries everything that the hosted cluster serves with the
// reader's credentials.
func TestReaderCanDoNothingElse(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	tenant.Apply(t, n.Hosted, "apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: openshift-ingress}\nspec: {ports: [{port: 80}]}\n")
	reader := readerClient(n)
	for _, tc := range []struct {
		verb, group, resource, name string
		namespace                   string
		allowed                     bool
	}{
		{"get", "", "services", "demo-apps", "openshift-ingress", false}, // who follows it has no use for that
		{"list", "", "services", "demo-apps", "openshift-ingress", true},
		{"watch", "", "services", "demo-apps", "openshift-ingress", true},
		{"update", "", "services", "demo-apps", "openshift-ingress", false},
		{"patch", "", "services", "demo-apps", "openshift-ingress", false},
		{"delete", "", "services", "demo-apps", "openshift-ingress", false},
		{"get", "", "services", "other", "openshift-ingress", false},
		{"list", "", "services", "", "openshift-ingress", false},
		{"list", "", "services", "", "", false},
		{"create", "", "services", "", "openshift-ingress", false},
		{"get", "", "services", "demo-apps", "default", false},
	} {
		if got := allowed(n, reader, tc.verb, tc.group, tc.resource, tc.namespace, tc.name); got != tc.allowed {
			t.Errorf("%s %s %s/%s: %v", tc.verb, tc.resource, tc.namespace, tc.name, got)
		}
	}
	tried := 0
	for _, r := range servedResources(n) {
		for _, verb := range []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "escalate", "impersonate"} {
			// Every user may review their own rights and identity, and since Kubernetes 1.37 every
			// ServiceAccount may read trust bundles, which are public.
			if r.group == "authorization.k8s.io" && strings.HasPrefix(r.name, "selfsubject") || r.group == "authentication.k8s.io" && strings.HasPrefix(r.name, "selfsubject") ||
				r.name == "clustertrustbundles" && slices.Contains([]string{"get", "list", "watch"}, verb) {
				continue
			}
			tried++
			if allowed(n, reader, verb, r.group, r.name, "openshift-ingress", "") {
				t.Errorf("the reader may %s %s in %q", verb, r.name, r.group)
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d rights were tried", tried)
	}

	// Revoked, it is made anew.
	before := readerSecret(n).ResourceVersion
	if err := n.Guest.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "demo-apps-reader"}}); err != nil {
		t.Fatal(err)
	}
	n.ApplyInfra(tenant.AppsIngress(", service: {annotations: {example.com/nudge: now}}"))
	lab.Await(t, "new credentials", func() string {
		if s := readerSecret(n); s.ResourceVersion == before {
			return "they are the old ones"
		}
		return ""
	})
	lab.Await(t, "them to work", func() string {
		if !allowed(n, readerClient(n), "watch", "", "services", "openshift-ingress", "demo-apps") {
			return "they do not"
		}
		return ""
	})
}

// TestNothingHangsOnDeletion deletes what can be deleted; nothing waits for us.
func TestNothingHangsOnDeletion(t *testing.T) {
	gone := func(n *tenant.Tenant) string {
		if err := n.Guest.Get(n.Context(), tenant.ServiceKey(), &corev1.Service{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the Service: %v", err)
		}
		return ""
	}
	remove := func(n *tenant.Tenant) {
		n.Helper()
		infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo"}}
		if err := n.Client.Delete(n.Context(), infra); err != nil {
			n.Fatal(err)
		}
		if err := n.Client.Get(n.Context(), n.Key("demo"), infra); !apierrors.IsNotFound(err) {
			n.Errorf("the Infra is still there: %v", err)
		}
	}
	t.Run("an Infra", func(t *testing.T) {
		n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
		tenants.NewReplica(t, n.Management, "control").Start(t)
		n.ApplyInfra(tenant.AppsIngress(""))
		n.Await(tenant.Ready, "", "", "192.0.2.200")
		remove(n)
		lab.Await(t, "what is in the hosted cluster to go", func() string { return gone(n) })
	})
	t.Run("an Infra while nobody looks", func(t *testing.T) {
		n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
		control := tenants.NewReplica(t, n.Management, "control")
		control.Start(t)
		n.ApplyInfra(tenant.AppsIngress(""))
		n.Await(tenant.Ready, "", "", "192.0.2.200")
		control.Kill(t)
		remove(n)
		if gone(n) == "" {
			t.Fatal("it is gone by itself")
		}
		control.Start(t)
		lab.Await(t, "the sweep", func() string { return gone(n) })
	})
	t.Run("the namespace", func(t *testing.T) {
		n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
		tenants.NewReplica(t, n.Management, "control").Start(t)
		n.ApplyInfra(tenant.AppsIngress(""))
		n.Await(tenant.Ready, "", "", "192.0.2.200")
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Namespace}}
		if err := n.Client.Delete(t.Context(), namespace); err != nil {
			t.Fatal(err)
		}
		lab.Await(t, "the namespace to be gone, with everything in it", func() string {
			if err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%v %+v", err, namespace.Status.Conditions)
			}
			return ""
		})
		// The hosted cluster goes with its HostedCluster, which was in there: whether what was
		// ours in it went before is of no consequence.
	})
	t.Run("a HostedCluster", func(t *testing.T) {
		n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
		tenants.NewReplica(t, n.Management, "control").Start(t)
		n.ApplyInfra(tenant.AppsIngress(""))
		n.Await(tenant.Ready, "", "", "192.0.2.200")
		hc := &unstructured.Unstructured{}
		hc.SetAPIVersion("hypershift.openshift.io/v1beta1")
		hc.SetKind("HostedCluster")
		hc.SetNamespace(n.Namespace)
		hc.SetName("demo")
		if err := n.Client.Delete(t.Context(), hc); err != nil {
			t.Fatal(err)
		}
		n.Await(tenant.Pending, v1alpha1.AppsIngressKubeconfigMissing, "does not exist")
		lab.Await(t, "the reader's Secret to go", func() string {
			if err := n.Client.Get(t.Context(), n.Key("demo-apps-reader"), &corev1.Secret{}); !apierrors.IsNotFound(err) {
				return fmt.Sprint(err)
			}
			return ""
		})
	})
}
