package control_test

import (
	"os"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/integration/internal/tenant"
	"github.com/densityops/oooi/test/lab"
)

// TestRejectedKubeconfigs replaces the admin kubeconfig by ones that an attacker, or a mistake, could put there. Control reports each
// one, keeps the address, and recovers without a restart. Package internal/kubeconfig tests every field that is rejected.
func TestRejectedKubeconfigs(t *testing.T) {
	n, _ := tenants.NewReadyTenant(t)
	good := n.AdminKubeconfig()
	edit := func(kubeconfig []byte, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
		config, err := clientcmd.Load(kubeconfig)
		lab.Must(t, err)
		current := config.Contexts[config.CurrentContext]
		change(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
		data, err := clientcmd.Write(*config)
		lab.Must(t, err)
		return data
	}
	server := func(url string) func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {
		return func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = url }
	}
	path, err := n.Hosted.UserKubeconfig("unprivileged")
	lab.Must(t, err)
	unprivileged, err := os.ReadFile(path)
	lab.Must(t, err)
	const rejected, missing = v1alpha1.AppsIngressKubeconfigRejected, v1alpha1.AppsIngressKubeconfigMissing
	for _, tc := range []struct {
		name    string
		data    []byte
		reason  v1alpha1.AppsIngressReason
		message string
	}{
		{"exec", edit(good, func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/true", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}), rejected, "exec"},
		{"invalid YAML", []byte("]["), rejected, "invalid kubeconfig"},
		{"no data", nil, missing, "lacks key"},
		{"other CA", edit(good, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.CertificateAuthorityData = tenants.Management.Get(t).CA()
		}), rejected, "does not trust the certificate"},
		{"user without permissions", edit(unprivileged, server("https://"+tenant.HostedName+":6443")), v1alpha1.AppsIngressHostedClusterForbidden, "unprivileged"},
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
		n.WriteKubeconfig(edit(good, server("https://"+host+":6443")))
		n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, host, "192.0.2.200")
	}
	n.WriteKubeconfig(good)
	n.ApplyInfra(tenant.AppsIngress(""))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
	lab.Must(t, n.Client.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo-admin-kubeconfig"}}))
	n.Await(tenant.Degraded, missing, "demo-admin-kubeconfig", "192.0.2.200")
	n.WriteKubeconfig(good)
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

func TestHostedClusterOutage(t *testing.T) {
	n, control := tenants.NewReadyTenant(t)
	lab.Must(t, n.Hosted.KillAPIServer())
	n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, "cannot be reached", "192.0.2.200")

	// After a restart during the outage, control knows the last address only from the status.
	control.Kill(t)
	control.Start(t)
	control.AwaitReady(t)
	n.Await(tenant.Degraded, v1alpha1.AppsIngressHostedClusterUnreachable, "cannot be reached", "192.0.2.200")

	// The API server starts with another certificate of the same CA.
	lab.Must(t, n.Hosted.RenewCertificate())
	lab.Must(t, n.Hosted.StartAPIServer(t.Context()))
	n.Await(tenant.Ready, "", "", "192.0.2.200")
}

// TestReaderCanDoNothingElse checks all permissions of the reader in the hosted cluster. The daemons only list and watch.
func TestReaderCanDoNothingElse(t *testing.T) {
	n, _ := tenants.NewReadyTenant(t)
	want := []authorizationv1.ResourceRule{{Verbs: []string{"list", "watch"}, APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{"demo-apps"}}}
	if diff := cmp.Diff(want, rulesIn(n, readerClient(n), "openshift-ingress")); diff != "" {
		t.Errorf("permissions in the Service's namespace (-want +got):\n%s", diff)
	}
	if rules := rulesIn(n, readerClient(n), "default"); len(rules) > 0 {
		t.Errorf("permissions in another namespace: %+v", rules)
	}

	// Deleted credentials are created again.
	before := readerSecret(n).ResourceVersion
	lab.Must(t, n.Guest.Delete(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "demo-apps-reader"}}))
	n.ApplyInfra(tenant.AppsIngress(", service: {annotations: {example.com/reconcile: now}}"))
	lab.Await(t, "new credentials", func() string {
		if s := readerSecret(n); s.ResourceVersion == before {
			return "the Secret has not changed"
		}
		return ""
	})
	lab.Await(t, "the new credentials to be valid", func() string { return cmp.Diff(want, rulesIn(n, readerClient(n), "openshift-ingress")) })
}

// TestAppsServiceStaysWhilePodsServe deletes an Infra whose pods serve the VLAN, with control and while it is down. Its apps
// Service stays until the last pod is deleted.
func TestAppsServiceStaysWhilePodsServe(t *testing.T) {
	n, control := tenants.NewReadyTenant(t)
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
	lab.Must(t, n.Client.Delete(t.Context(), infra))
	// The sweep of another replica deletes a Service of another Infra, which it reads after demo's.
	n.Hosted.MustApply(t, lab.Service("openshift-ingress", "zz-other", 443,
		"metadata: {labels: {app.kubernetes.io/managed-by: oooi}, annotations: {hostedcluster.densityops.com/infra: "+n.Namespace+"/other}}"))
	control.Kill(t)
	control.Start(t)
	lab.AwaitDeleted(t, n.Guest, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "zz-other"}})
	if err := n.Guest.Get(t.Context(), tenant.ServiceKey(), &corev1.Service{}); err != nil {
		t.Fatalf("the apps Service while a pod serves: %v", err)
	}
	lab.Must(t, n.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	n.AwaitNoService()
}

// TestDeletionIsNotBlocked deletes objects in several ways. Nothing waits for control, because there are no
// finalizers.
func TestDeletionIsNotBlocked(t *testing.T) {
	deleteInfra := func(n *tenant.Tenant) {
		n.Helper()
		infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "demo"}}
		lab.Must(n, n.Client.Delete(n.Context(), infra))
		if err := n.Client.Get(n.Context(), n.Key("demo"), infra); !apierrors.IsNotFound(err) {
			n.Errorf("the Infra still exists: %v", err)
		}
	}
	t.Run("an Infra", func(t *testing.T) {
		n, _ := tenants.NewReadyTenant(t)
		deleteInfra(n)
		n.AwaitNoService()
	})
	t.Run("an Infra while control is down", func(t *testing.T) {
		n, control := tenants.NewReadyTenant(t)
		control.Kill(t)
		deleteInfra(n)
		n.Service() // it exists until control runs
		control.Start(t)
		n.AwaitNoService()
	})
	t.Run("the namespace", func(t *testing.T) {
		n, _ := tenants.NewReadyTenant(t)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Namespace}}
		lab.Must(t, n.Client.Delete(t.Context(), namespace))
		lab.AwaitDeleted(t, n.Client, namespace)
		// HyperShift deletes the hosted cluster with its HostedCluster, so it does not matter whether control
		// deletes its objects there first.
	})
	t.Run("a HostedCluster", func(t *testing.T) {
		n, _ := tenants.NewReadyTenant(t)
		lab.Must(t, n.Management.DeleteYAML(t.Context(), []byte(n.Site().HostedCluster().YAML())))
		n.Await(tenant.Pending, v1alpha1.AppsIngressKubeconfigMissing, "does not exist")
		n.AwaitNoReader()
	})
}
