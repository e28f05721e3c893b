package model_test

import (
	"encoding/json"
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
)

// TestAppsGolden reads the folders whose clusters have applications, which TestGolden
// reads while nobody asks for these.
func TestAppsGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/apps-*/objects.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no folders: %v", err)
	}
	for _, file := range files {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			checkGolden(t, dir, dir+"-asked.golden", model.Options{Apps: &model.AppsOptions{}})
		})
	}
}

// Objects of the tests below, as YAML.
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
	// The demo-apps of the guest, mirrored.
	mirror = `
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

// demoInfra is the Infra of demo, with its appsIngress and status as YAML.
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

// mirrored is a mirrored Service of a day in February.
func mirrored(name, namespace string, day int, addresses ...string) string {
	return fmt.Sprintf(mirror, name, namespace, day, ingress(addresses))
}

func ingress(addresses []string) string {
	list := make([]string, len(addresses))
	for i, a := range addresses {
		list[i] = fmt.Sprintf("{ip: %q}", a)
	}
	return strings.Join(list, ", ")
}

// read returns the objects of YAML documents.
func read(t *testing.T, documents ...string) *model.Objects {
	t.Helper()
	return readWith(t, model.Options{}, documents...)
}

// readWith reads what is needed for the options.
func readWith(t *testing.T, options model.Options, documents ...string) *model.Objects {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := watch.ReadManifests(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	for _, broken := range in.Broken {
		t.Fatal(broken.Error)
	}
	return in
}

// guest is the applications' Service inside demo.
func guest(addresses ...string) *objects.AppsService {
	s := &objects.AppsService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}, Read: true,
		Service: &objects.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "openshift-ingress", Name: "demo-apps"}},
	}
	for _, a := range addresses {
		s.Service.Status.LoadBalancer.Ingress = append(s.Service.Status.LoadBalancer.Ingress, objects.LoadBalancerIngress{IP: a})
	}
	return s
}

func guestWithoutService() *objects.AppsService {
	s := guest()
	s.Service = nil
	return s
}

func withFault(s *objects.AppsService, reason string) *objects.AppsService {
	s.Fault = objects.Fault{Reason: reason, Message: "it is so"}
	return s
}

func addresses(list ...string) []netip.Addr {
	var parsed []netip.Addr
	for _, a := range list {
		parsed = append(parsed, netip.MustParseAddr(a))
	}
	return parsed
}

// appsCase is a demo cluster, and where its applications are.
type appsCase struct {
	name    string
	objects []string // as YAML; demo is there if no other cluster is
	guest   *objects.AppsService
	last    []netip.Addr
	options model.AppsOptions
	want    string   // addresses by source; "nobody asks" for none at all
	says    []string // how the problems begin, in their order
}

func (c *appsCase) input(t *testing.T) *model.Objects {
	t.Helper()
	in := read(t, withDemo(c.objects)...)
	if c.guest != nil {
		in.AppsServices = []*objects.AppsService{c.guest}
	}
	if c.last != nil {
		in.LastGood = map[string][]netip.Addr{"clusters/demo": c.last}
	}
	return in
}

// withDemo adds the demo cluster to documents that have none.
func withDemo(documents []string) []string {
	if slices.ContainsFunc(documents, func(d string) bool { return strings.Contains(d, "kind: HostedCluster\n") }) {
		return documents
	}
	return append([]string{demoCluster}, documents...)
}

func found(s *model.Snapshot) string {
	a := s.Clusters[0].Apps
	switch {
	case a == nil:
		return "nobody asks"
	case a.Source == "":
		return fmt.Sprint(a.Addresses)
	default:
		return fmt.Sprintf("%v by %s", a.Addresses, a.Source)
	}
}

func runApps(t *testing.T, cases []appsCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := c.input(t)
			s := model.Build(in, model.Options{Apps: &c.options})
			if got := found(s); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			for i, p := range s.Problems {
				if i >= len(c.says) || !strings.HasPrefix(p.String(), c.says[i]) {
					t.Errorf("unexpected problem %s", p)
				}
			}
			if len(s.Problems) < len(c.says) {
				t.Errorf("of %q only %d are said", c.says, len(s.Problems))
			}
			if last := s.LastGood()["clusters/demo"]; s.Clusters[0].Apps != nil && !slices.Equal(last, s.Clusters[0].Apps.Addresses) {
				t.Errorf("what is kept for the next snapshot is %v", last)
			}
		})
	}
}

const (
	notAssigned = "Infra clusters/demo: AddressNotAssigned: "
	notAllowed  = "Infra clusters/demo: AddressNotAllowed: "
	withdrawn   = "Infra clusters/demo: AddressWithdrawn: "
)

func TestAppsOfTheHostedService(t *testing.T) {
	hosted := []string{demoInfra("{enabled: true}", "")}
	runApps(t, []appsCase{
		{name: "not asked yet", objects: hosted, want: "[]"},
		{name: "an address", objects: hosted, guest: guest("192.0.2.100"), want: "[192.0.2.100] by hosted"},
		{name: "one of each family, sorted and each once", objects: hosted,
			guest: guest("2001:db8::100", "192.0.2.100", "::ffff:192.0.2.100"), want: "[192.0.2.100 2001:db8::100] by hosted"},
		{name: "no address yet", objects: hosted, guest: guest(), want: "[]",
			says: []string{notAssigned + "Service openshift-ingress/demo-apps in HostedCluster clusters/demo has no load balancer address"}},
		{name: "no Service", objects: hosted, guest: guestWithoutService(), want: "[]",
			says: []string{notAssigned + "HostedCluster clusters/demo has no Service openshift-ingress/demo-apps"}},
		{name: "no Service of the name given", objects: []string{demoInfra("{enabled: true, service: {name: web, namespace: routers}}", "")},
			guest: guestWithoutService(), want: "[]", says: []string{notAssigned + "HostedCluster clusters/demo has no Service routers/web"}},
		{name: "no Service with the labels given", objects: hosted, guest: guestWithoutService(), want: "[]",
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}, Selector: map[string]string{"b": "2", "a": "1"}},
			says:    []string{notAssigned + "HostedCluster clusters/demo has no Service with labels map[a:1 b:2]"}},
		{name: "no credentials", objects: hosted, guest: withFault(&objects.AppsService{ObjectMeta: guest().ObjectMeta}, "KubeconfigMissing"),
			want: "[]", says: []string{"Infra clusters/demo: KubeconfigMissing: it is so"}},
		{name: "an outage takes nothing", objects: hosted, guest: withFault(guest("192.0.2.100"), "HostedClusterUnreachable"),
			want: "[192.0.2.100] by hosted", says: []string{"Infra clusters/demo: HostedClusterUnreachable: it is so"}},
		{name: "without an Infra the problem is the cluster's", guest: guest("192.0.2.100"), want: "[]",
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsHosted}, Allow: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
			says:    []string{"HostedCluster clusters/demo: AddressNotAllowed: "}},
		{name: "another cluster's is another's", objects: hosted,
			guest: &objects.AppsService{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "other"}, Service: guest("192.0.2.100").Service}, want: "[]"},
		{name: "no Infra asks", guest: guest("192.0.2.100"), want: "nobody asks"},
		{name: "the Infra does not ask", objects: []string{demoInfra("{enabled: false}", "")}, guest: guest("192.0.2.100"),
			last: addresses("192.0.2.100"), want: "nobody asks"},
	})
}

func TestAppsOfTheMirroredService(t *testing.T) {
	infra := demoInfra("{enabled: true, source: MirroredService}", "")
	other := func(from, to string) string {
		return strings.Replace(mirrored("a9", "clusters-demo", 9, "192.0.2.109"), from, to, 1)
	}
	const none = notAssigned + "the management cluster has no Service openshift-ingress/demo-apps of HostedCluster clusters/demo"
	runApps(t, []appsCase{
		{name: "by its labels", objects: []string{infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101")}, want: "[192.0.2.101] by mirrored"},
		{name: "the newest", objects: []string{
			infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101"), mirrored("a3", "clusters-demo", 3, "192.0.2.103"), mirrored("a2", "clusters-demo", 2, "192.0.2.102"),
		}, want: "[192.0.2.103] by mirrored"},
		{name: "of two of an age, the last by name", objects: []string{
			infra, mirrored("b", "clusters-demo", 1, "192.0.2.102"), mirrored("a", "clusters-demo", 1, "192.0.2.101"),
		}, want: "[192.0.2.102] by mirrored"},
		{name: "none", objects: []string{infra}, want: "[]", says: []string{none}},
		{name: "one without an address", objects: []string{infra, mirrored("a1", "clusters-demo", 1)}, want: "[]",
			says: []string{notAssigned + "Service clusters-demo/a1 for HostedCluster clusters/demo has no load balancer address"}},
		{name: "one that lost its address", objects: []string{infra, mirrored("a1", "clusters-demo", 1)}, last: addresses("192.0.2.101"),
			want: "[192.0.2.101] by last known good",
			says: []string{withdrawn + "Service clusters-demo/a1 for HostedCluster clusters/demo has no load balancer address any more; the last address stays in use"}},
		{name: "another cluster's", objects: []string{infra, other("demo-x7k2p", "other-1a2b3")}, want: "[]", says: []string{none}},
		{name: "another Service's", objects: []string{infra, other("demo-apps", "shop")}, want: "[]", says: []string{none}},
		{name: "a Service of another namespace in the guest", objects: []string{infra, other("openshift-ingress", "default")}, want: "[]", says: []string{none}},
		{name: "one that lost its type", objects: []string{infra, other("type: LoadBalancer", "type: ClusterIP")}, want: "[]", says: []string{none}},
		{name: "the labels on somebody else's Service", objects: []string{infra, mirrored("a1", "tenant", 9, "192.0.2.109")}, want: "[]", says: []string{none}},
		{name: "where the virtual machines run", objects: []string{
			strings.Replace(demoCluster, "infraID: demo-x7k2p", "infraID: demo-x7k2p, platform: {kubevirt: {credentials: {infraNamespace: guests}}}", 1),
			infra, mirrored("a1", "guests", 1, "192.0.2.101"),
		}, want: "[192.0.2.101] by mirrored"},
		{name: "no infraID is not every cluster's", objects: []string{
			strings.Replace(demoCluster, "infraID: demo-x7k2p, ", "", 1), infra, other("demo-x7k2p", `""`),
		}, want: "[]", says: []string{none}},
		{name: "as the Infra names it", objects: []string{
			demoInfra("{enabled: true, source: MirroredService, service: {name: web, namespace: routers}}", ""),
			strings.Replace(other("demo-apps", "web"), "openshift-ingress", "routers", 1),
		}, want: "[192.0.2.109] by mirrored"},
		{name: "a Service named in the Corefile", objects: []string{
			infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101"), mirrored("shard", "routers", 1, "192.0.2.102"),
		}, options: model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Service: "routers/shard"}, want: "[192.0.2.102] by mirrored"},
		{name: "labels in the Corefile", objects: []string{infra, mirrored("a1", "clusters-demo", 1, "192.0.2.101")},
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Selector: map[string]string{"tier": "apps"}}, want: "[192.0.2.101] by mirrored"},
		{name: "labels in the Corefile on somebody else's Service", objects: []string{infra, mirrored("a1", "tenant", 1, "192.0.2.101")},
			options: model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored}, Selector: map[string]string{"tier": "apps"}},
			want:    "[]", says: []string{notAssigned + "the management cluster has no Service with labels map[tier:apps]"}},
	})
}

func TestAppsOfTheStatusAndOfTheSpec(t *testing.T) {
	status := []model.AppsSource{model.AppsStatus}
	runApps(t, []appsCase{
		{name: "the status", objects: []string{demoInfra("{enabled: true}", "externalIPs: [192.0.2.102, 192.0.2.101]")}, want: "[192.0.2.101 192.0.2.102] by status"},
		{name: "the status of an old release", objects: []string{demoInfra("{enabled: true}", "externalIP: 192.0.2.101")}, want: "[192.0.2.101] by status"},
		{name: "the new field of a status that has both", objects: []string{demoInfra("{enabled: true}", "externalIP: 192.0.2.101, externalIPs: [192.0.2.102]")},
			want: "[192.0.2.102] by status"},
		{name: "a status is believed no more than a Service", objects: []string{demoInfra("{enabled: true}", "externalIPs: [198.51.100.1]")}, want: "[]",
			says: []string{notAllowed + `status of Infra clusters/demo has the address "198.51.100.1", which is not in the allowed ranges 192.0.2.0-192.0.2.255, `}},
		{name: "no status", objects: []string{demoInfra("{enabled: true}", "")}, want: "[]"},
		{name: "the status of no Infra", options: model.AppsOptions{Sources: status}, want: "[]"},
		{name: "the status of an Infra that does not ask", objects: []string{demoInfra("{enabled: false}", "externalIPs: [192.0.2.101]")},
			options: model.AppsOptions{Sources: status}, want: "[]"},

		{name: "static addresses as they are", objects: []string{demoInfra(`{enabled: true, source: Static, addresses: [203.0.113.80, "2001:db8:1::80"]}`, "externalIPs: [192.0.2.101]")},
			guest: guest("192.0.2.100"), want: "[203.0.113.80 2001:db8:1::80] by static"},
		{name: "static addresses that nobody can reach", objects: []string{demoInfra("{enabled: true, source: Static, addresses: [0.0.0.0, 192.0.2.80, x]}", "")},
			want: "[192.0.2.80] by static", says: []string{
				`Infra clusters/demo: InvalidAddress: spec.appsIngress.addresses: "0.0.0.0"`, `Infra clusters/demo: InvalidAddress: spec.appsIngress.addresses: "x"`,
			}},
		{name: "static addresses with another source", objects: []string{demoInfra("{enabled: true, addresses: [203.0.113.80]}", "")}, want: "[]"},
	})
}

func TestAppsSourcesAreAskedInTheirOrder(t *testing.T) {
	sources := func(list ...model.AppsSource) model.AppsOptions { return model.AppsOptions{Sources: list} }
	all := []string{
		demoInfra("{enabled: true}", "externalIPs: [192.0.2.102]"), mirrored("a1", "clusters-demo", 1, "192.0.2.101"),
	}
	runApps(t, []appsCase{
		{name: "hosted, then status", objects: all, guest: guest("192.0.2.100"), want: "[192.0.2.100] by hosted"},
		{name: "status, while hosted is not read", objects: all, want: "[192.0.2.102] by status"},
		{name: "status, while hosted has none", objects: all, guest: guest(), want: "[192.0.2.102] by status", says: []string{notAssigned}},
		{name: "status, while what hosted has is not allowed", objects: all, guest: guest("198.51.100.1"), want: "[192.0.2.102] by status", says: []string{notAllowed}},
		{name: "mirrored, then status", objects: append(slices.Clone(all[1:]), demoInfra("{enabled: true, source: MirroredService}", "externalIPs: [192.0.2.102]")),
			guest: guest("192.0.2.100"), want: "[192.0.2.101] by mirrored"},
		{name: "status, while nothing is mirrored", objects: []string{demoInfra("{enabled: true, source: MirroredService}", "externalIPs: [192.0.2.102]")},
			want: "[192.0.2.102] by status", says: []string{notAssigned}},
		{name: "the Corefile's, whatever the Infra says", objects: all, guest: guest("192.0.2.100"),
			options: sources(model.AppsStatus, model.AppsMirrored, model.AppsHosted), want: "[192.0.2.102] by status"},
		{name: "the Corefile's second", objects: all[1:], guest: guest("192.0.2.100"),
			options: model.AppsOptions{
				Sources: []model.AppsSource{model.AppsStatus, model.AppsMirrored, model.AppsHosted}, Allow: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
			}, want: "[192.0.2.101] by mirrored"},
		{name: "any of them before the last known good", objects: all, last: addresses("192.0.2.99"), want: "[192.0.2.102] by status"},
	})
}

func TestLastKnownGood(t *testing.T) {
	hosted := []string{demoInfra("{enabled: true}", "")}
	last := addresses("192.0.2.100", "2001:db8::100")
	const both = "[192.0.2.100 2001:db8::100] by last known good"
	runApps(t, []appsCase{
		{name: "after a restart, until the Service is read", objects: hosted, last: last, want: both},
		{name: "while the Service has no address", objects: hosted, guest: guest(), last: last, want: both,
			says: []string{withdrawn + "Service openshift-ingress/demo-apps in HostedCluster clusters/demo has no load balancer address any more; the last address stays in use"}},
		{name: "while there is no Service", objects: hosted, guest: guestWithoutService(), last: last, want: both,
			says: []string{withdrawn + "HostedCluster clusters/demo has no Service openshift-ingress/demo-apps any more; the last address stays in use"}},
		{name: "while the Service's address is not allowed", objects: hosted, guest: guest("198.51.100.1"), last: last, want: both, says: []string{notAllowed}},
		{name: "while there are no credentials", objects: hosted, guest: withFault(guest(), "KubeconfigRejected"), last: last, want: both,
			says: []string{withdrawn, "Infra clusters/demo: KubeconfigRejected: "}},
		{name: "until it is replaced", objects: hosted, guest: guest("192.0.2.101"), last: last, want: "[192.0.2.101] by hosted"},
		{name: "as far as it is still allowed", objects: []string{demoInfra(`{enabled: true, metallb: {ipAddressPoolRange: "2001:db8::/64"}}`, "")}, last: last,
			want: "[2001:db8::100] by last known good"},
		{name: "not when none of it is allowed any more", objects: []string{demoInfra("{enabled: true, metallb: {ipAddressPoolRange: 192.0.2.200-192.0.2.209}}", "")},
			guest: guest(), last: last, want: "[]", says: []string{notAssigned}},
		{name: "not when a service of ours has it now", objects: hosted, last: addresses("192.0.2.3"), want: "[]"},
		{name: "not when the Infra does not ask any more", objects: []string{demoInfra("{enabled: false}", "")}, last: last, want: "nobody asks"},
		{name: "not another cluster's", objects: []string{
			strings.ReplaceAll(demoCluster, "demo", "demo2"), strings.ReplaceAll(hosted[0], "demo", "demo2"),
		}, last: last, want: "[]"},
	})
}

// A HostedCluster that does not exist yet has nothing to follow, and its stand-in must
// not take the address of a HostedCluster that has the Infra's name.
func TestInfraWithoutAHostedClusterTakesNoAddressOfItsNamesake(t *testing.T) {
	infra := strings.NewReplacer(
		"hostedClusterRef: {name: demo}", "hostedClusterRef: {name: later}", "serverIP: 192.0.2.2/24", "clusterName: later, baseDomain: example.com",
	).Replace(demoInfra("{enabled: true}", "externalIPs: [192.0.2.101]"))
	c := appsCase{objects: []string{infra}, guest: guest("192.0.2.100"), last: addresses("192.0.2.99"), options: model.AppsOptions{
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
			t.Errorf("%s: got %s, followed by %+v", cluster.Ref, got, cluster.Apps.Hosted)
		}
	}
	if got := fmt.Sprint(s.LastGood()); got != "map[clusters/demo:[192.0.2.100]]" {
		t.Errorf("kept for the next snapshot is %s", got)
	}
}

func TestApplicationsAreWantedBeforeThereIsACluster(t *testing.T) {
	infra := strings.Replace(demoInfra("{enabled: true}", "externalIPs: []"), "hostedClusterRef: {name: demo}", "hostedClusterRef: {name: later}", 1)
	c := appsCase{objects: []string{infra}}
	s := model.Build(c.input(t), model.Options{Apps: &c.options})
	if i := s.Infras[0]; i.Cluster != nil || !i.WantsApps() {
		t.Errorf("%s serves %v, and says %t to whether it wants applications", i.Ref, i.Cluster, i.WantsApps())
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
		{"the Infra's reader, by the API server's Service and its port", []string{enabled}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"credentials in the Corefile", []string{enabled}, model.AppsOptions{Sources: hosted, Credentials: "clusters/mine"},
			&model.HostedAccess{Secret: "clusters/mine", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"no Infra", nil, model.AppsOptions{Sources: hosted, Credentials: "clusters/mine"},
			&model.HostedAccess{Secret: "clusters/mine", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"no Infra and no credentials", nil, model.AppsOptions{Sources: hosted},
			&model.HostedAccess{Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"an Infra that does not ask has no reader", []string{demoInfra("{enabled: false}", "")}, model.AppsOptions{Sources: hosted},
			&model.HostedAccess{Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "openshift-ingress/demo-apps"}},
		{"a Service named in the Infra", []string{demoInfra("{enabled: true, service: {name: web, namespace: routers}}", "")}, model.AppsOptions{},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "routers/web"}},
		{"a Service named in the Corefile", []string{enabled}, model.AppsOptions{Sources: hosted, Service: "routers/web"},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Service: "routers/web"}},
		{"a Service by its labels", []string{enabled}, model.AppsOptions{Sources: hosted, Selector: map[string]string{"tier": "apps"}},
			&model.HostedAccess{Secret: "clusters/demo-apps-reader", Key: "kubeconfig", Dial: "10.96.0.50:7443", Selector: map[string]string{"tier": "apps"}}},
		{"the kubeconfig's own URL", []string{demoInfra("{enabled: true, dial: URL}", "")}, model.AppsOptions{},
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
		{"mirrored is not followed", []string{demoInfra("{enabled: true, source: MirroredService}", "")}, model.AppsOptions{}, nil},
		{"static is not followed", []string{demoInfra("{enabled: true, source: Static, addresses: [192.0.2.80]}", "")}, model.AppsOptions{}, nil},
		{"hosted is not among the Corefile's", []string{enabled}, model.AppsOptions{Sources: []model.AppsSource{model.AppsMirrored, model.AppsStatus}}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := model.Build(read(t, withDemo(test.objects)...), model.Options{Apps: &test.options})
			if diff := cmp.Diff(test.want, s.Clusters[0].Apps.Hosted); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// The snapshot file holds the objects as JSON.
func TestAppsSurviveTheSnapshotFile(t *testing.T) {
	c := appsCase{
		objects: []string{demoInfra("{enabled: true}", "externalIPs: [192.0.2.102]"), mirrored("a1", "clusters-demo", 1, "192.0.2.101")},
		guest:   withFault(guest("192.0.2.100", "198.51.100.1"), "HostedClusterUnreachable"), last: addresses("192.0.2.99", "2001:db8::99"),
	}
	in := c.input(t)
	data, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out model.Objects
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	for _, sources := range [][]model.AppsSource{nil, {model.AppsMirrored}, {model.AppsStatus}, {"none of them"}} {
		options := model.Options{Apps: &model.AppsOptions{Sources: sources}}
		if diff := cmp.Diff(render(model.Build(in, options)), render(model.Build(&out, options))); diff != "" {
			t.Errorf("%v: %s", sources, diff)
		}
	}
}

// Whoever owns a hosted cluster writes its Services' status.
func TestLongStatusIsCutShort(t *testing.T) {
	many := make([]string, 5000)
	for i := range many {
		many[i] = fmt.Sprintf("2001:db8::1:%x", i)
	}
	bad := make([]string, 5000)
	for i := range bad {
		bad[i] = fmt.Sprintf("2001:db8:1::%x", i)
	}
	for name, list := range map[string][]string{"allowed": many, "not allowed": bad} {
		t.Run(name, func(t *testing.T) {
			c := appsCase{objects: []string{demoInfra("{enabled: true}", "")}, guest: guest(list...)}
			s := model.Build(c.input(t), model.Options{Apps: &c.options})
			if got := len(s.Clusters[0].Apps.Addresses); got > 16 {
				t.Errorf("%d addresses are believed", got)
			}
			if len(s.Problems) == 0 || len(s.Problems) > 17 {
				t.Errorf("there are %d problems", len(s.Problems))
			}
			if !slices.ContainsFunc(s.Problems, func(p model.Problem) bool {
				return strings.HasSuffix(p.Message, "has more than 16 addresses: the rest is not used")
			}) {
				t.Error("it is not said")
			}
		})
	}
}
