package model_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestAppsGolden builds the apps-* folders with apps addresses; TestGolden builds them without.
func TestAppsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/apps-*/objects.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no folders: %v", err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checkGolden(t, dir, dir+"-with-apps.golden", model.Options{Apps: &model.AppsOptions{}})
		})
	}
}

// YAML of objects.
const (
	demoCluster = `
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: clusters, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {infraID: demo-x7k2p, dns: {baseDomain: example.com}}
---
apiVersion: v1
kind: Service
metadata: {name: kube-apiserver, namespace: clusters-demo}
spec: {clusterIP: 10.96.0.50, ports: [{port: 7443}, {port: 6443}]}
`
	// The Service that mirrors demo-apps.
	mirroredServiceYAML = `
apiVersion: v1
kind: Service
metadata:
  name: %s
  namespace: %s
  creationTimestamp: "2026-02-%02dT00:00:00Z"
  labels:
    cluster.x-k8s.io/cluster-name: demo-x7k2p
    cluster.x-k8s.io/tenant-service-name: demo-apps
    cluster.x-k8s.io/tenant-service-namespace: openshift-ingress
    tier: apps
spec: {type: LoadBalancer}
status: {loadBalancer: {ingress: [%s]}}
`
)

// demoInfra returns the Infra of the cluster demo, with appsIngress and status as YAML.
func demoInfra(appsIngress, status string) string {
	return fmt.Sprintf(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 192.0.2.0/24, additionalCIDRs: ["2001:db8::/64"], gateway: 192.0.2.1, networkAttachmentDefinition: vlan}
  infraComponents:
    dhcp: {serverIP: 192.0.2.4, rangeStart: 192.0.2.30, rangeEnd: 192.0.2.39}
    dns: {serverIP: 192.0.2.2/24}
    proxy: {serverIP: 192.0.2.3/24, internalProxyService: 10.96.0.3}
  appsIngress: %s
status: {appsIngress: {%s}}
`, appsIngress, status)
}

// mirrored returns a mirrored Service, created on a day in February.
func mirrored(name, namespace string, day int, addresses ...string) string {
	return fmt.Sprintf(mirroredServiceYAML, name, namespace, day, ingress(addresses))
}

func ingress(addresses []string) string {
	list := make([]string, len(addresses))
	for i, a := range addresses {
		list[i] = fmt.Sprintf("{ip: %q}", a)
	}
	return strings.Join(list, ", ")
}

// readObjects returns the objects of YAML documents.
func readObjects(t *testing.T, documents ...string) *model.Objects {
	t.Helper()
	return readObjectsFor(t, model.Options{}, documents...)
}

// readObjectsFor returns the objects of YAML documents that are needed for the options.
func readObjectsFor(t *testing.T, options model.Options, documents ...string) *model.Objects {
	t.Helper()
	dir := t.TempDir()
	lab.Must(t, os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(strings.Join(documents, "\n---\n")), 0o600))
	in, err := watch.ReadManifests(dir, options)
	lab.Must(t, err)
	for _, broken := range in.Broken {
		t.Fatal(broken.Error)
	}
	return in
}

// hostedService returns the apps Service in the cluster demo, with the given addresses.
func hostedService(addresses ...string) *objects.AppsService {
	s := &objects.AppsService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}, Read: true,
		Service: &objects.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "demo-apps"}},
	}
	for _, a := range addresses {
		s.Service.Status.LoadBalancer.Ingress = append(s.Service.Status.LoadBalancer.Ingress, objects.LoadBalancerIngress{IP: a})
	}
	return s
}

func hostedServiceMissing() *objects.AppsService {
	s := hostedService()
	s.Service = nil
	return s
}

func withFault(s *objects.AppsService, reason string) *objects.AppsService {
	s.Fault = objects.Fault{Reason: reason, Message: "cannot be read"}
	return s
}

func addresses(list ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, a := range list {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	return parsed
}

// appsCase is a test case: the cluster demo and its sources of apps addresses.
type appsCase struct {
	name          string
	objects       []string // as YAML; demo is added if they have no HostedCluster
	hostedService *objects.AppsService
	lastAddresses []netip.Addr // apps addresses of the previous snapshot
	options       model.AppsOptions
}

func (c *appsCase) input(t *testing.T) *model.Objects {
	t.Helper()
	in := readObjects(t, withDemo(c.objects)...)
	if c.hostedService != nil {
		in.AppsServices = []*objects.AppsService{c.hostedService}
	}
	if c.lastAddresses != nil {
		in.LastGood = map[string][]netip.Addr{"clusters/demo": c.lastAddresses}
	}
	return in
}

// withDemo adds the cluster demo to documents without a HostedCluster.
func withDemo(documents []string) []string {
	if slices.ContainsFunc(documents, func(d string) bool { return strings.Contains(d, "kind: HostedCluster\n") }) {
		return documents
	}
	return append([]string{demoCluster}, documents...)
}

func appsSummary(s *model.Snapshot) string {
	a := s.Clusters[0].Apps
	switch {
	case a == nil:
		return "disabled"
	case a.Source == "":
		return fmt.Sprint(a.Addresses)
	default:
		return fmt.Sprintf("%v by %s", a.Addresses, a.Source)
	}
}

// runApps compares the apps addresses and the problems of each case with the golden file of the test.
func runApps(t *testing.T, cases []appsCase) {
	t.Helper()
	var b strings.Builder
	for _, c := range cases {
		s := model.Build(c.input(t), model.Options{Apps: &c.options})
		fmt.Fprintf(&b, "%s: %s\n", c.name, appsSummary(s))
		for _, p := range s.Problems {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
		if lastAddresses := s.LastGood()["clusters/demo"]; s.Clusters[0].Apps != nil && !slices.Equal(lastAddresses, s.Clusters[0].Apps.Addresses) {
			t.Errorf("%s: LastGood is %v", c.name, lastAddresses)
		}
	}
	golden.Check(t, "testdata/"+t.Name()+".golden", b.String())
}

func TestAppsOfTheHostedService(t *testing.T) {
	hosted := []string{demoInfra("{enabled: true}", "")}
	runApps(t, []appsCase{
		{name: "not read yet", objects: hosted},
		{name: "an address", objects: hosted, hostedService: hostedService("192.0.2.100")},
		{name: "one of each family, sorted and unique", objects: hosted, hostedService: hostedService("2001:db8::100", "192.0.2.100", "::ffff:192.0.2.100")},
		{name: "no address yet", objects: hosted, hostedService: hostedService()},
		{name: "no Service", objects: hosted, hostedService: hostedServiceMissing()},
		{name: "no Service with the Infra's name", objects: []string{demoInfra("{enabled: true, service: {name: web, namespace: routers}}", "")},
			hostedService: hostedServiceMissing()},
		{name: "no Service with the option's labels", objects: hosted, hostedService: hostedServiceMissing(),
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}, Selector: map[string]string{"b": "2", "a": "1"}}},
		{name: "no credentials", objects: hosted, hostedService: withFault(&objects.AppsService{ObjectMeta: hostedService().ObjectMeta}, "KubeconfigMissing")},
		{name: "an outage keeps the address", objects: hosted, hostedService: withFault(hostedService("192.0.2.100"), "HostedClusterUnreachable")},
		{name: "without an Infra the problem is reported for the cluster", hostedService: hostedService("192.0.2.100"),
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}, Allow: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}},
		{name: "the Service of another cluster is not used", objects: hosted,
			hostedService: &objects.AppsService{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "other"}, Service: hostedService("192.0.2.100").Service}},
		{name: "no Infra", hostedService: hostedService("192.0.2.100")},
		{name: "apps are disabled in the Infra", objects: []string{demoInfra("{enabled: false}", "")}, hostedService: hostedService("192.0.2.100"),
			lastAddresses: addresses("192.0.2.100")},
	})
}

func TestAppsOfTheMirroredService(t *testing.T) {
	infra := demoInfra("{enabled: true, source: MirroredService}", "")
	other := func(from, to string) string {
		return strings.Replace(mirrored("a9", "clusters-demo", 9, "192.0.2.109"), from, to, 1)
	}
	runApps(t, []appsCase{
		{name: "selected by labels", objects: []string{infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101")}},
		{name: "the newest", objects: []string{
			infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101"), mirrored("a3", "clusters-demo", 3, "192.0.2.103"), mirrored("a2", "clusters-demo", 2, "192.0.2.102"),
		}},
		{name: "of two created at the same time, the last by name", objects: []string{
			infra, mirrored("b", "clusters-demo", 1, "192.0.2.102"), mirrored("a", "clusters-demo", 1, "192.0.2.101"),
		}},
		{name: "none", objects: []string{infra}},
		{name: "a Service without an address", objects: []string{infra, mirrored("a1", "clusters-demo", 1)}},
		{name: "a Service that lost its address", objects: []string{infra, mirrored("a1", "clusters-demo", 1)}, lastAddresses: addresses("192.0.2.101")},
		{name: "a Service of another cluster", objects: []string{infra, other("demo-x7k2p", "other-1a2b3")}},
		{name: "a mirror of another Service", objects: []string{infra, other("demo-apps", "shop")}},
		{name: "a mirror of a Service in another namespace of the hosted cluster", objects: []string{infra, other("openshift-ingress", "default")}},
		{name: "a Service that is no load balancer", objects: []string{infra, other("type: LoadBalancer", "type: ClusterIP")}},
		{name: "a Service with the labels in another namespace", objects: []string{infra, mirrored("a1", "tenant", 9, "192.0.2.109")}},
		{name: "in the namespace of the VMs", objects: []string{
			strings.Replace(demoCluster, "infraID: demo-x7k2p", "infraID: demo-x7k2p, platform: {kubevirt: {credentials: {infraNamespace: guests}}}", 1),
			infra, mirrored("a1", "guests", 1, "192.0.2.101"),
		}},
		{name: "without an infraID no Service matches", objects: []string{
			strings.Replace(demoCluster, "infraID: demo-x7k2p, ", "", 1), infra, other("demo-x7k2p", `""`),
		}},
		{name: "with the name in the Infra", objects: []string{
			demoInfra("{enabled: true, source: MirroredService, service: {name: web, namespace: routers}}", ""),
			strings.Replace(other("demo-apps", "web"), "openshift-ingress", "routers", 1),
		}},
		{name: "a Service named in the Corefile", objects: []string{
			infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101"), mirrored("shard", "routers", 1, "192.0.2.102"),
		}, options: model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Service: "routers/shard"}},
		{name: "labels in the Corefile", objects: []string{infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101")},
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Selector: map[string]string{"tier": "apps"}}},
		{name: "labels in the Corefile, on a Service in another namespace", objects: []string{infra, mirrored("a1", "tenant", 1, "192.0.2.101")},
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Selector: map[string]string{"tier": "apps"}}},
	})
}

func TestAppsOfTheStatusAndOfTheSpec(t *testing.T) {
	status := []model.AppsSource{model.AppsStatus}
	runApps(t, []appsCase{
		{name: "the status", objects: []string{demoInfra("{enabled: true}", "externalIPs: [192.0.2.102, 192.0.2.101]")}},
		{name: "a status with externalIP only", objects: []string{demoInfra("{enabled: true}", "externalIP: 192.0.2.101")}},
		{name: "a status with externalIP and externalIPs", objects: []string{demoInfra("{enabled: true}", "externalIP: 192.0.2.101, externalIPs: [192.0.2.102]")}},
		{name: "addresses of a status are checked as well", objects: []string{demoInfra("{enabled: true}", "externalIPs: [198.51.100.1]")}},
		{name: "no status", objects: []string{demoInfra("{enabled: true}", "")}},
		{name: "source status without an Infra", options: model.AppsOptions{Sources: status}},
		{name: "the status of an Infra with disabled apps", objects: []string{demoInfra("{enabled: false}", "externalIPs: [192.0.2.101]")},
			options: model.AppsOptions{Sources: status}},

		{name: "static addresses outside of the VLAN", objects: []string{demoInfra(`{enabled: true, source: Static, addresses: [203.0.113.80, "2001:db8:1::80"]}`, "externalIPs: [192.0.2.101]")},
			hostedService: hostedService("192.0.2.100")},
		{name: "invalid static addresses", objects: []string{demoInfra("{enabled: true, source: Static, addresses: [0.0.0.0, 192.0.2.0, 192.0.2.80, 192.0.2.255, x]}", "")}},
		{name: "static addresses with another source", objects: []string{demoInfra("{enabled: true, addresses: [203.0.113.80]}", "")}},
	})
}

func TestAppsSourcesAreTriedInOrder(t *testing.T) {
	sources := func(list ...model.AppsSource) model.AppsOptions { return model.AppsOptions{Sources: list} }
	all := []string{
		demoInfra("{enabled: true}", "externalIPs: [192.0.2.102]"), mirrored("a1", "clusters-demo", 1, "192.0.2.101"),
	}
	runApps(t, []appsCase{
		{name: "hosted, then status", objects: all, hostedService: hostedService("192.0.2.100")},
		{name: "status, while hosted is not read yet", objects: all},
		{name: "status, while hosted has no address", objects: all, hostedService: hostedService()},
		{name: "status, while the address of hosted is not allowed", objects: all, hostedService: hostedService("198.51.100.1")},
		{name: "mirrored, then status", objects: append(slices.Clone(all[1:]), demoInfra("{enabled: true, source: MirroredService}", "externalIPs: [192.0.2.102]")),
			hostedService: hostedService("192.0.2.100")},
		{name: "status, while nothing is mirrored", objects: []string{demoInfra("{enabled: true, source: MirroredService}", "externalIPs: [192.0.2.102]")}},
		{name: "the Corefile's sources precede the Infra's", objects: all, hostedService: hostedService("192.0.2.100"),
			options: sources(model.AppsStatus, model.AppsMirrored, model.AppsHosted)},
		{name: "the Corefile's second source", objects: all[1:], hostedService: hostedService("192.0.2.100"),
			options: model.AppsOptions{
				Sources: []model.AppsSource{model.AppsStatus, model.AppsMirrored, model.AppsHosted}, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
			}},
		{name: "all sources precede the last known good addresses", objects: all, lastAddresses: addresses("192.0.2.99")},
	})
}

func TestLastKnownGood(t *testing.T) {
	hosted := []string{demoInfra("{enabled: true}", "")}
	lastAddresses := addresses("192.0.2.100", "2001:db8::100")
	runApps(t, []appsCase{
		{name: "after a restart, until the Service is read", objects: hosted, lastAddresses: lastAddresses},
		{name: "while the Service has no address", objects: hosted, hostedService: hostedService(), lastAddresses: lastAddresses},
		{name: "while the Service does not exist", objects: hosted, hostedService: hostedServiceMissing(), lastAddresses: lastAddresses},
		{name: "while the Service's address is not allowed", objects: hosted, hostedService: hostedService("198.51.100.1"), lastAddresses: lastAddresses},
		{name: "while there are no credentials", objects: hosted, hostedService: withFault(hostedService(), "KubeconfigRejected"), lastAddresses: lastAddresses},
		{name: "until it is replaced", objects: hosted, hostedService: hostedService("192.0.2.101"), lastAddresses: lastAddresses},
		{name: "only addresses that are still allowed", objects: []string{demoInfra(`{enabled: true, metallb: {ipAddressPoolRange: "2001:db8::/64"}}`, "")}, lastAddresses: lastAddresses},
		{name: "not if no address is allowed", objects: []string{demoInfra("{enabled: true, metallb: {ipAddressPoolRange: 192.0.2.200-192.0.2.209}}", "")},
			hostedService: hostedService(), lastAddresses: lastAddresses},
		{name: "not if a component has the address now", objects: hosted, lastAddresses: addresses("192.0.2.3")},
		{name: "not if apps are disabled in the Infra", objects: []string{demoInfra("{enabled: false}", "")}, lastAddresses: lastAddresses},
		{name: "not those of another cluster", objects: []string{
			strings.ReplaceAll(demoCluster, "demo", "demo2"), strings.ReplaceAll(hosted[0], "demo", "demo2"),
		}, lastAddresses: lastAddresses},
	})
}

// TestPlaceholderHasNoAddressOfItsNamesake checks that no Service is watched for a HostedCluster that does
// not exist yet, and that its placeholder does not get the addresses of a HostedCluster with the name of the
// Infra.
func TestPlaceholderHasNoAddressOfItsNamesake(t *testing.T) {
	infra := strings.NewReplacer(
		"hostedClusterRef: {name: demo}", "hostedClusterRef: {name: later}", "serverIP: 192.0.2.2/24", "clusterName: later, baseDomain: example.com",
	).Replace(demoInfra("{enabled: true}", "externalIPs: [192.0.2.101]"))
	c := appsCase{objects: []string{infra}, hostedService: hostedService("192.0.2.100"), lastAddresses: addresses("192.0.2.99"), options: model.AppsOptions{
		Sources: []model.AppsSource{model.AppsHosted, model.AppsStatus}, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
	}}
	s := model.Build(c.input(t), model.Options{Apps: &c.options})
	if len(s.Clusters) != 2 {
		t.Fatalf("got %d clusters", len(s.Clusters))
	}
	for _, cluster := range s.Clusters {
		want := "[192.0.2.101]"
		if cluster.Kind == "HostedCluster" {
			want = "[192.0.2.100]"
		}
		if got := fmt.Sprint(cluster.Apps.Addresses); got != want || (cluster.Apps.Hosted != nil) != (cluster.Kind == "HostedCluster") {
			t.Errorf("%s: got %s, hosted access %+v", cluster.Ref, got, cluster.Apps.Hosted)
		}
	}
	if got := fmt.Sprint(s.LastGood()); got != "map[clusters/demo:[192.0.2.100]]" {
		t.Errorf("LastGood is %s", got)
	}
}

func TestHostedAccess(t *testing.T) {
	service := func(edit ...string) string { return strings.NewReplacer(edit...).Replace(demoCluster) }
	enabled := demoInfra("{enabled: true}", "")
	hosted := []model.AppsSource{model.AppsHosted}
	tests := []struct {
		name    string
		objects []string
		options model.AppsOptions
		want    *model.HostedAccess
	}{
		{"the Infra's reader, the API server's Service and its first port", []string{enabled}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"credentials in the Corefile", []string{enabled}, model.AppsOptions{Sources: hosted, Credentials: "clusters/mine"},
			&model.HostedAccess{Secret: "clusters/mine", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"no Infra", nil, model.AppsOptions{Sources: hosted, Credentials: "clusters/mine"},
			&model.HostedAccess{Secret: "clusters/mine", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"no Infra and no credentials", nil, model.AppsOptions{Sources: hosted},
			&model.HostedAccess{Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"an Infra with disabled apps has no reader", []string{demoInfra("{enabled: false}", "")}, model.AppsOptions{Sources: hosted},
			&model.HostedAccess{Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"a Service named in the Infra", []string{demoInfra("{enabled: true, service: {name: web, namespace: routers}}", "")}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "routers/web"}},
		{"a Service named in the Corefile", []string{enabled}, model.AppsOptions{Sources: hosted, Service: "routers/web"},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "routers/web"}},
		{"a Service selected by labels", []string{enabled}, model.AppsOptions{Sources: hosted, Selector: map[string]string{"tier": "apps"}},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Selector: map[string]string{"tier": "apps"}}},
		{"the URL in the kubeconfig", []string{demoInfra("{enabled: true, dial: URL}", "")}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Service: "openshift-ingress/demo-apps"}},
		{"the API server's Service under another name", []string{
			strings.Replace(enabled, "proxy: {", "proxy: {apiServerService: kas, ", 1),
			"{apiVersion: v1, kind: Service, metadata: {name: kas, namespace: clusters-demo}, spec: {clusterIP: 10.96.0.51, ports: [{port: 6444}]}}",
		}, model.AppsOptions{}, &model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.51:6444", Service: "openshift-ingress/demo-apps"}},
		{"no Service of that name", []string{strings.Replace(enabled, "proxy: {", "proxy: {apiServerService: kas, ", 1)}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Service: "openshift-ingress/demo-apps"}},
		{"an API server on IPv6", []string{service("clusterIP: 10.96.0.50", `clusterIP: "fd00:96::50"`), enabled}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "[fd00:96::50]:7443", Service: "openshift-ingress/demo-apps"}},
		{"a Service without ports", []string{service("ports: [{port: 7443}, {port: 6443}]", "ports: []"), enabled}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:6443", Service: "openshift-ingress/demo-apps"}},
		{"a headless Service", []string{service("clusterIP: 10.96.0.50", "clusterIP: None"), enabled}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Service: "openshift-ingress/demo-apps"}},
		{"the API server of another cluster", []string{service("clusters-demo", "clusters-other"), enabled}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Service: "openshift-ingress/demo-apps"}},
		{"source mirrored", []string{demoInfra("{enabled: true, source: MirroredService}", "")}, model.AppsOptions{}, nil},
		{"source static", []string{demoInfra("{enabled: true, source: Static, addresses: [192.0.2.80]}", "")}, model.AppsOptions{}, nil},
		{"hosted is not a source in the Corefile", []string{enabled}, model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored, model.AppsStatus}}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := model.Build(readObjects(t, withDemo(test.objects)...), model.Options{Apps: &test.options})
			if diff := cmp.Diff(test.want, s.Clusters[0].Apps.Hosted); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestAddressesOfAStatusAreLimited checks the limit of addresses in the status of a Service, which the owner of a
// hosted cluster can write.
func TestAddressesOfAStatusAreLimited(t *testing.T) {
	allowed := make([]string, 5000)
	for i := range allowed {
		allowed[i] = fmt.Sprintf("2001:db8::1:%x", i)
	}
	notAllowedList := make([]string, 5000)
	for i := range notAllowedList {
		notAllowedList[i] = fmt.Sprintf("2001:db8:1::%x", i)
	}
	for name, list := range map[string][]string{"allowed": allowed, "not allowed": notAllowedList} {
		t.Run(name, func(t *testing.T) {
			c := appsCase{objects: []string{demoInfra("{enabled: true}", "")}, hostedService: hostedService(list...)}
			s := model.Build(c.input(t), model.Options{Apps: &c.options})
			if got := len(s.Clusters[0].Apps.Addresses); got > 16 {
				t.Errorf("%d addresses are accepted", got)
			}
			if len(s.Problems) == 0 || len(s.Problems) > 17 {
				t.Errorf("there are %d problems", len(s.Problems))
			}
			if !slices.ContainsFunc(s.Problems, func(p model.Problem) bool {
				return strings.HasSuffix(p.Message, "has more than 16 addresses: only the first 16 are used")
			}) {
				t.Error("the limit is not reported")
			}
		})
	}
}
