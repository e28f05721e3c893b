package dns_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/test/lab"
)

// domain is the base domain of the hosted clusters.
const domain = "lab.example.com"

// cluster is a hosted cluster with its Infra and the Service of its proxy.
type cluster struct {
	name  string
	net   string // first three octets of the VLAN's addresses
	proxy string // the proxy's address on the VLAN
	pod   string // the proxy's cluster IP
	apps  string // spec.appsIngress of the Infra
}

// The hosted clusters of most tests. The apps address of blue comes from a Service in a real hosted cluster,
// that of green is static.
var (
	blue = cluster{
		name: "blue", net: "127.50.0", proxy: "127.50.0.3", pod: "127.96.1.50",
		apps: "{enabled: true, metallb: {ipAddressPoolRange: 192.0.2.0/24, loadBalancerClass: metallb.io/vlan}}",
	}
	green = cluster{
		name: "green", net: "127.60.0", proxy: "127.60.0.3", pod: "127.96.1.60",
		apps: "{enabled: true, source: Static, addresses: [198.51.100.100]}",
	}
)

// Apps addresses. They are not on the tests' VLANs, because load balancer addresses in loopback networks are
// rejected.
const (
	blueApps     = "192.0.2.200"
	blueAppsNext = "192.0.2.201"
	greenApps    = "198.51.100.100"
)

const clustersYAML = `
apiVersion: v1
kind: Namespace
metadata: {name: clusters}
---
`

func (c cluster) yaml() string {
	return clustersYAML + c.hostedCluster(c.name+"."+domain, "") + c.infra() + fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: clusters-%[1]s}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s-proxy, namespace: clusters}
spec: {clusterIP: %[2]s, ports: [{port: 6443}]}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: ignition-server, namespace: clusters-%[1]s}
spec: {host: %[3]s, to: {kind: Service, name: ignition-server-proxy, weight: 100}}
---
`, c.name, c.pod, c.routeHost())
}

// routeHost returns the host of a Route, outside of the cluster's own domain.
func (c cluster) routeHost() string { return "ignition-" + c.name + ".apps.management.example.com" }

// hostedCluster returns a HostedCluster that the real CRD accepts. Its API server's name is api.<apiDomain>;
// more are further lines of the spec.
func (c cluster) hostedCluster(apiDomain, more string) string {
	return lab.HostedCluster{Namespace: "clusters", Name: c.name, BaseDomain: domain, API: "api." + apiDomain, More: more}.YAML()
}

func (c cluster) infra() string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[1]s, namespace: clusters}
spec:
  hostedClusterRef: {name: %[1]s}
  networkConfig: {cidr: %[2]s.0/24, gateway: %[2]s.1, networkAttachmentDefinition: %[1]s}
  infraComponents: {proxy: {serverIP: %[3]s}}
  appsIngress: %[4]s
---
`, c.name, c.net, c.proxy, c.apps)
}

// apply applies objects, and deletes them when the test ends.
func apply(t *testing.T, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	update(t, cp, yaml)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lab.WaitTimeout) // the test's context is done
		defer cancel()
		objects, err := lab.ParseYAML([]byte(yaml))
		if err != nil {
			t.Error(err)
		}
		for _, object := range objects {
			if object.GetKind() == "Namespace" {
				continue // no controller would empty it
			}
			if err := cp.Delete(ctx, object); err != nil {
				t.Error(err)
			}
		}
	})
}

// update applies objects without deleting them at the end: they exist already, or another call of apply
// deletes them.
func update(t *testing.T, cp *lab.ControlPlane, yaml string) {
	t.Helper()
	if err := cp.ApplyYAML(t.Context(), []byte(yaml)); err != nil {
		t.Fatal(err)
	}
}

// addHostedCluster adds the hosted cluster of blue: an API server with the apps Service, and in the
// management cluster the Service and the kubeconfig with which coredns reads it.
func addHostedCluster(t *testing.T, cp *lab.ControlPlane) *lab.ControlPlane {
	t.Helper()
	guest := hosted.Get(t)
	update(t, guest, `
apiVersion: v1
kind: Namespace
metadata: {name: openshift-ingress}
---
apiVersion: v1
kind: Service
metadata: {name: blue-apps, namespace: openshift-ingress}
spec: {type: LoadBalancer, ports: [{port: 443}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: openshift-ingress}
rules: [{apiGroups: [""], resources: [services], resourceNames: [blue-apps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: openshift-ingress}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]
`)
	assignApps(t, guest, blueApps)
	server, err := url.Parse(guest.ServerURL())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, cp, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: clusters-blue}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: clusters-blue}
spec: {clusterIP: %s, ports: [{port: %s}]}
---
%s`, hostedAddress, server.Port(), readerSecret("blue", readerKubeconfig(t, guest))))
	return guest
}

// assignApps sets the address of blue's apps Service, as a load balancer does.
func assignApps(t *testing.T, guest *lab.ControlPlane, address string) {
	t.Helper()
	err := guest.ApplyStatusYAML(t.Context(), []byte(`
apiVersion: v1
kind: Service
metadata: {name: blue-apps, namespace: openshift-ingress}
status: {loadBalancer: {ingress: [{ip: `+address+`}]}}
`))
	if err != nil {
		t.Fatal(err)
	}
}

// readerKubeconfig returns a kubeconfig that may only read the apps Service. As HyperShift writes it, it has
// the API server's public name, which does not resolve here.
func readerKubeconfig(t *testing.T, guest *lab.ControlPlane) string {
	t.Helper()
	path, err := guest.UserKubeconfig("reader")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range config.Clusters {
		c.Server = "https://api.blue." + domain + ":6443"
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readerSecret(infra, kubeconfig string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s-apps-reader, namespace: clusters}\nstringData:\n  kubeconfig: |\n    %s\n---\n",
		infra, strings.ReplaceAll(kubeconfig, "\n", "\n    "))
}

// kubeconfigFor writes a kubeconfig without credentials for a server, and returns its path.
func kubeconfigFor(t *testing.T, server string) string {
	t.Helper()
	path := t.TempDir() + "/kubeconfig"
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q}}]
contexts: [{name: test, context: {cluster: test}}]
`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// touch changes an object in the namespace clusters without effect on any answer.
func touch(t *testing.T, cp *lab.ControlPlane, resource schema.GroupVersionResource, name string, n int) {
	t.Helper()
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"metadata": {"annotations": {"touched": "%d"}}}`, n)
	_, err = client.Resource(resource).Namespace("clusters").Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
