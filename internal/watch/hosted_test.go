package watch_test

import (
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

// hostedAddress is the address of the hosted cluster's API server: a loopback address that is also a cluster
// IP of the management cluster, so that clients can connect to its Service.
const hostedAddress = "127.96.0.77"

var (
	loopbackManagement = lab.Shared{
		Config: lab.Config{Name: "loopback", ServiceCIDR: "127.96.0.0/16", CRDs: []lab.CRDSet{lab.HyperShift, lab.Oooi}},
	}
	hostedPlane = lab.Shared{
		Config: lab.Config{Name: "hosted", Address: hostedAddress, ServerNames: []string{"api.demo.example.com"}, ServiceCIDR: "172.31.0.0/16"},
	}
)

// hostedKubeconfig returns a kubeconfig for the hosted cluster as HyperShift writes it, with the API server's
// public name, which cannot be resolved here.
func hostedKubeconfig(t *testing.T, hosted *lab.ControlPlane, user string) []byte {
	t.Helper()
	path := hosted.Kubeconfig()
	if user != "" {
		var err error
		if path, err = hosted.UserKubeconfig(user); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	lab.Must(t, err)
	config, err := clientcmd.Load(data)
	lab.Must(t, err)
	for _, c := range config.Clusters {
		c.Server = "https://api.demo.example.com:6443"
	}
	if data, err = clientcmd.Write(*config); err != nil {
		t.Fatal(err)
	}
	return data
}

func secretYAML(namespace, name string, kubeconfig []byte) string {
	return fmt.Sprintf("\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: %s}\nstringData:\n  kubeconfig: |\n    %s\n",
		name, namespace, strings.ReplaceAll(string(kubeconfig), "\n", "\n    "))
}

// apiServiceYAML returns the Service of the hosted API server.
func apiServiceYAML(t *testing.T, namespace string, hosted *lab.ControlPlane) string {
	t.Helper()
	server, err := url.Parse(hosted.ServerURL())
	lab.Must(t, err)
	return lab.Service(namespace, "kube-apiserver", 1, fmt.Sprintf("spec: {clusterIP: %s, ports: [{port: %s}]}", hostedAddress, server.Port()))
}

func appsStatusYAML(addresses ...string) []byte {
	var list []string
	for _, a := range addresses {
		list = append(list, "{ip: "+a+"}")
	}
	return []byte(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: demo-apps, namespace: openshift-ingress}
status: {loadBalancer: {ingress: [%s]}}
`, strings.Join(list, ", ")))
}

func appsOf(s *model.Snapshot) *model.Apps {
	if len(s.Clusters) == 0 || s.Clusters[0].Apps == nil {
		return &model.Apps{}
	}
	return s.Clusters[0].Apps
}

func hasProblem(s *model.Snapshot, reason model.Reason) bool {
	for _, p := range s.Problems {
		if p.Reason == reason {
			return true
		}
	}
	return false
}

func TestStoreFollowsHostedService(t *testing.T) {
	cp, hosted := loopbackManagement.Get(t), hostedPlane.Get(t)
	ns := cp.Namespace(t)
	hcp := model.ControlPlaneNamespace(ns, "demo")
	cp.MustApply(t, lab.Namespaces(hcp)+lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}.YAML()+apiServiceYAML(t, hcp, hosted))
	store := run(t, watch.Config{
		Kubeconfig: cp.Kubeconfig(),
		Scope:      model.Scope{HostedClusters: []string{ns + "/demo"}},
		Apps: &model.AppsOptions{
			Sources: []model.AppsSource{model.AppsHosted}, Credentials: ns + "/reader",
			Service: "openshift-ingress/demo-apps", Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		},
	})
	reason := func(want model.Reason) func(*model.Snapshot) bool {
		return func(s *model.Snapshot) bool { return hasProblem(s, want) }
	}
	at := func(want string) func(*model.Snapshot) bool {
		return func(s *model.Snapshot) bool { return fmt.Sprint(appsOf(s).Addresses) == want }
	}
	await(t, store, "the problem of a missing Secret", reason(model.ReasonKubeconfigMissing))

	cp.MustApply(t, secretYAML(ns, "reader", []byte("current-context: nowhere")))
	await(t, store, "the problem of an invalid kubeconfig", reason("KubeconfigRejected"))

	cp.MustApply(t, secretYAML(ns, "reader", hostedKubeconfig(t, hosted, "reader")))
	await(t, store, "the problem of missing permissions", reason("HostedClusterForbidden"))

	hosted.MustApply(t, lab.Namespaces("openshift-ingress")+lab.LoadBalancer("openshift-ingress", "demo-apps")+
		lab.Role("openshift-ingress", "reader", "reader", `{apiGroups: [""], resources: [services], resourceNames: [demo-apps], verbs: [get, list, watch]}`))
	await(t, store, "the problem of a missing address", reason(model.ReasonAddressNotAssigned))

	set := func(addresses ...string) {
		t.Helper()
		lab.Must(t, hosted.ApplyStatusYAML(t.Context(), appsStatusYAML(addresses...)))
	}
	set("192.0.2.200")
	await(t, store, "the address", at("[192.0.2.200]"))
	set("192.0.2.201")
	await(t, store, "the next address", at("[192.0.2.201]"))
	set("203.0.113.7")
	await(t, store, "the problem of an address that is not allowed", reason(model.ReasonAddressNotAllowed))
	if s := store.Snapshot(); !at("[192.0.2.201]")(s) || appsOf(s).Source != model.AppsLastGood {
		t.Errorf("the last valid address is not kept: %+v", appsOf(s))
	}
	set()
	await(t, store, "the problem of a withdrawn address", reason(model.ReasonAddressWithdrawn))
	if s := store.Snapshot(); !at("[192.0.2.201]")(s) {
		t.Errorf("the last valid address is not kept: %+v", appsOf(s))
	}

	set("192.0.2.202")
	await(t, store, "the address after the withdrawal", func(s *model.Snapshot) bool {
		return at("[192.0.2.202]")(s) && len(s.Problems) == 0
	})
	lab.Must(t, hosted.KillAPIServer())
	await(t, store, "the problem of the outage", reason("HostedClusterUnreachable"))
	if s := store.Snapshot(); !at("[192.0.2.202]")(s) || appsOf(s).Source != model.AppsHosted {
		t.Errorf("the address is lost in the outage: %+v", appsOf(s))
	}
	lab.Must(t, hosted.StartAPIServer(t.Context()))
	await(t, store, "no problem after the outage", func(s *model.Snapshot) bool { return len(s.Problems) == 0 })

	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(lab.HostedCluster{Namespace: ns, Name: "demo", BaseDomain: "example.com"}.YAML())))
	await(t, store, "the cluster to be removed", func(s *model.Snapshot) bool { return len(s.Clusters) == 0 })
	if age := store.Status().Age(); age > time.Minute {
		t.Errorf("age of the snapshot is %s", age)
	}
}
