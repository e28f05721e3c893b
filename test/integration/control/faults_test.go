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

// TestRejectedKubeconfigs replaces the admin kubeconfig by ones that an attacker, or a mistake, could put
// there. Control reports each one, keeps the address, and recovers without a restart.
func TestRejectedKubeconfigs(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	tenants.NewReplica(t, n.Management, "control").Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	good := n.AdminKubeconfig()
	edit := func(change func(*clientcmdapi.Config)) []byte {
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
	editUser := func(change func(*clientcmdapi.AuthInfo)) []byte {
		return edit(func(c *clientcmdapi.Config) {
			for _, u := range c.AuthInfos {
				change(u)
			}
		})
	}
	editCluster := func(change func(*clientcmdapi.Cluster)) []byte {
		return edit(func(c *clientcmdapi.Config) {
			for _, u := range c.Clusters {
				change(u)
			}
		})
	}
	unprivilegedPath, err := n.Hosted.UserKubeconfig("unprivileged")
	if err != nil {
		t.Fatal(err)
	}
	unprivilegedConfig, err := clientcmd.LoadFromFile(unprivilegedPath)
	if err != nil {
		t.Fatal(err)
	}
	unprivileged, err := clientcmd.Write(*unprivilegedConfig)
	if err != nil {
		t.Fatal(err)
	}
	unprivileged = bytes.ReplaceAll(unprivileged, []byte(n.Hosted.ServerURL()), []byte("https://"+tenant.HostedName+":6443"))
	const rejected, missing = v1alpha1.AppsIngressKubeconfigRejected, v1alpha1.AppsIngressKubeconfigMissing
	for _, tc := range []struct {
		name    string
		data    []byte
		reason  v1alpha1.AppsIngressReason
		message string
	}{
		{"exec", editUser(func(u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/true", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}), rejected, "exec"},
		{"auth-provider", editUser(func(u *clientcmdapi.AuthInfo) { u.AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"} }), rejected, "auth-provider"},
		{"tokenFile", editUser(func(u *clientcmdapi.AuthInfo) { u.TokenFile = "/etc/passwd" }), rejected, "tokenFile"},
		{"impersonation", editUser(func(u *clientcmdapi.AuthInfo) { u.Impersonate = "root" }), rejected, "as"},
		{"proxy-url", editCluster(func(c *clientcmdapi.Cluster) { c.ProxyURL = "http://192.0.2.66" }), rejected, "proxy-url"},
		{"insecure-skip-tls-verify", editCluster(func(c *clientcmdapi.Cluster) { c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil }), rejected, "insecure-skip-tls-verify"},
		{"invalid YAML", []byte("]["), rejected, "invalid kubeconfig"},
		{"no data", nil, missing, "has no key"},
		{"other CA", editCluster(func(c *clientcmdapi.Cluster) { c.CertificateAuthorityData = tenants.Management.Get(t).CA() }), rejected, "does not trust the certificate"},
		{"user without rights", unprivileged, v1alpha1.AppsIngressHostedClusterForbidden, "unprivileged"},
	} {
		n.WriteKubeconfig(tc.data)
		t.Log(tc.name)
		n.Await(tenant.Degraded, tc.reason, tc.message, "192.0.2.200")
		if strings.Contains(n.State().Message, "BEGIN") {
			t.Errorf("%s: the message contains keys: %s", tc.name, n.State().Message)
		}
	}
	// With dial: URL control connects to the kubeconfig's host: one refuses connections, the other drops
	// packets.
	n.ApplyInfra(tenant.AppsIngress(", dial: URL"))
	for _, host := range []string{"127.255.255.253", "203.0.113.7"} {
		n.WriteKubeconfig(editCluster(func(c *clientcmdapi.Cluster) { c.Server = "https://" + host + ":6443" }))
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

func TestHostedClusterOutage(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	control := tenants.NewReplica(t, n.Management, "control")
	control.Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	if err := n.Hosted.KillAPIServer(); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, "cannot be reached", "192.0.2.200")

	// After a restart during the outage, control knows the last address only from the status.
	control.Kill(t)
	control.Start(t)
	control.AwaitReady(t)
	n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, "cannot be reached", "192.0.2.200")

	// The API server starts with another certificate of the same CA.
	if err := n.Hosted.RenewCertificate(); err != nil {
		t.Fatal(err)
	}
	if err := n.Hosted.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

// TestReaderCanDoNothingElse checks the reader's rights on every resource that the hosted cluster serves.
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
		{"get", "", "services", "demo-apps", "openshift-ingress", false}, // the daemons only list and watch
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
		t.Errorf("only %d rights were checked", tried)
	}

	// Deleted credentials are created again.
	before := readerSecret(n).ResourceVersion
	if err := n.Guest.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "demo-apps-reader"}}); err != nil {
		t.Fatal(err)
	}
	n.ApplyInfra(tenant.AppsIngress(", service: {annotations: {example.com/reconcile: now}}"))
	lab.Await(t, "new credentials", func() string {
		if s := readerSecret(n); s.ResourceVersion == before {
			return "the Secret has not changed"
		}
		return ""
	})
	lab.Await(t, "the new credentials to be valid", func() string {
		if !allowed(n, readerClient(n), "watch", "", "services", "openshift-ingress", "demo-apps") {
			return "watch is denied"
		}
		return ""
	})
}

// TestAppsServiceStaysWhilePodsServe deletes an Infra whose pods serve the VLAN, with control and while it is down. Its apps
// Service stays until the last pod is deleted.
func TestAppsServiceStaysWhilePodsServe(t *testing.T) {
	n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
	control := tenants.NewReplica(t, n.Management, "control")
	control.Start(t)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo-dns-0", Labels: map[string]string{v1alpha1.LabelInfra: "demo", v1alpha1.LabelComponent: v1alpha1.ComponentDNS}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "coredns", Image: "coredns"}}, SchedulerName: "none"},
	}
	lab.Await(t, "the pod to be created", func() string { // when its ServiceAccount exists
		if err := n.Client.Create(t.Context(), pod); err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
	infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo"}}
	if err := n.Client.Delete(t.Context(), infra); err != nil {
		t.Fatal(err)
	}
	// The sweep of another replica deletes a Service of another Infra, which it reads after that of demo.
	other := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenant.ServiceKey().Namespace, Name: "zz-other", Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
			Annotations: map[string]string{v1alpha1.AnnotationInfra: n.Namespace + "/other"},
		},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}},
	}
	if err := n.Guest.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	control.Kill(t)
	control.Start(t)
	lab.Await(t, "the sweep", func() string {
		if err := n.Guest.Get(t.Context(), client.ObjectKeyFromObject(other), other); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("Service %s: %v", other.Name, err)
		}
		return ""
	})
	if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), &corev1.Service{}); err != nil {
		t.Fatalf("the apps Service while a pod serves: %v", err)
	}
	if err := n.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	lab.Await(t, "the apps Service to be deleted", func() string {
		if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), &corev1.Service{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// TestDeletionIsNotBlocked deletes objects in several ways. Nothing waits for control, because there are no
// finalizers.
func TestDeletionIsNotBlocked(t *testing.T) {
	checkRemoved := func(n *tenant.Tenant) string {
		if err := n.Guest.Get(n.Context(), tenant.ServiceKey(), &corev1.Service{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the Service: %v", err)
		}
		return ""
	}
	deleteInfra := func(n *tenant.Tenant) {
		n.Helper()
		infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo"}}
		if err := n.Client.Delete(n.Context(), infra); err != nil {
			n.Fatal(err)
		}
		if err := n.Client.Get(n.Context(), n.Key("demo"), infra); !apierrors.IsNotFound(err) {
			n.Errorf("the Infra still exists: %v", err)
		}
	}
	t.Run("an Infra", func(t *testing.T) {
		n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
		tenants.NewReplica(t, n.Management, "control").Start(t)
		n.ApplyInfra(tenant.AppsIngress(""))
		n.Await(tenant.Ready, "", "", "192.0.2.200")
		deleteInfra(n)
		lab.Await(t, "the objects in the hosted cluster to be deleted", func() string { return checkRemoved(n) })
	})
	t.Run("an Infra while control is down", func(t *testing.T) {
		n := tenants.NewTenantWithMetalLB(t, "192.0.2.200/32")
		control := tenants.NewReplica(t, n.Management, "control")
		control.Start(t)
		n.ApplyInfra(tenant.AppsIngress(""))
		n.Await(tenant.Ready, "", "", "192.0.2.200")
		control.Kill(t)
		deleteInfra(n)
		if checkRemoved(n) == "" {
			t.Fatal("the Service was deleted without control")
		}
		control.Start(t)
		lab.Await(t, "the orphaned objects to be deleted", func() string { return checkRemoved(n) })
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
		lab.Await(t, "the namespace and everything in it to be deleted", func() string {
			if err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("%v %+v", err, namespace.Status.Conditions)
			}
			return ""
		})
		// HyperShift deletes the hosted cluster with its HostedCluster, so it does not matter whether control
		// deletes its objects there first.
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
		if err := n.Management.Delete(t.Context(), hc); err != nil {
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
