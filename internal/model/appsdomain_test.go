package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

// testCluster is a hosted cluster with its cluster domain, its configured apps domains, and a hostname. In a
// list, each cluster is older than the one before it.
type testCluster struct {
	name, domain string
	apps         []string
	host         string
	vlan         string // "" for a shared one
	idle         bool   // apps are disabled
	absent       bool   // no Infra serves it
}

// yaml returns the HostedCluster and its Infra. A cluster with a greater age is older.
func (d testCluster) yaml(age int) string {
	d.apps = append(d.apps, "", "")
	if d.vlan == "" {
		d.vlan = "shared"
	}
	text := fmt.Sprintf(`
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: %[1]s, namespace: clusters, creationTimestamp: "20%02[2]d-01-01T00:00:00Z"}
spec:
  dns: {baseDomain: %[3]s, baseDomainPrefix: ""}
  kubeAPIServerDNSName: %[4]q
  configuration: {ingress: {appsDomain: %[5]q, domain: %[6]q}}
`, d.name, 50-age, d.domain, d.host, d.apps[0], d.apps[1])
	if d.absent {
		return text
	}
	return text + fmt.Sprintf(`---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: %[1]s, namespace: clusters}
spec:
  hostedClusterRef: {name: %[1]s}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: %[2]s}
  infraComponents: {proxy: {serverIP: 192.0.2.%[4]d, internalProxyService: 10.96.0.3}}
  appsIngress: {enabled: %[3]t, source: Static, addresses: [192.0.2.80]}
`, d.name, d.vlan, !d.idle, 10+age)
}

// servedAppsDomains returns "domain cluster" of the apps domains that are served in a view, and of the OAuth
// servers in them.
func servedAppsDomains(v *model.View) []string {
	var list []string
	for _, a := range v.Apps {
		if a.Subtree && a.Served {
			list = append(list, a.Name+" "+a.Cluster.Name)
		}
	}
	for _, n := range v.Names {
		if strings.HasPrefix(n.Name, "oauth-openshift.") {
			list = append(list, n.Name+" "+n.Cluster.Name)
		}
	}
	slices.Sort(list)
	return list
}

// withOAuth adds the OAuth server's name to each entry, as for clusters that have the whole apps domain.
func withOAuth(list ...string) []string {
	for _, entry := range slices.Clone(list) {
		list = append(list, "oauth-openshift."+entry)
	}
	slices.Sort(list)
	return list
}

func TestAppsDomains(t *testing.T) {
	blue := testCluster{name: "blue", domain: "blue.example.com"}
	green := testCluster{name: "green", domain: "green.example.org"}
	with := func(d testCluster, apps ...string) testCluster {
		d.apps = apps
		return d
	}
	hosting := func(d testCluster, host string) testCluster {
		d.host = host
		return d
	}
	tests := []struct {
		name     string
		clusters []testCluster // youngest first
		pods     []string
		vlans    map[string][]string // if they differ from pods
		problems []string
	}{
		{name: "default apps domains", clusters: []testCluster{blue, green}, pods: withOAuth("apps.blue.example.com blue", "apps.green.example.org green")},
		{name: "two apps domains, one outside of the cluster domain", clusters: []testCluster{with(blue, "apps.example.net", "apps.blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue", "apps.example.net blue")},
		{name: "the cluster domain itself", clusters: []testCluster{with(blue, "blue.example.com")}, pods: withOAuth("blue.example.com blue")},
		{name: "two apps domains, the second in the first", clusters: []testCluster{with(blue, "apps.example.net", "old.apps.example.net")},
			pods: withOAuth("apps.example.net blue", "old.apps.example.net blue")},
		{name: "two apps domains, the first in the second", clusters: []testCluster{with(blue, "old.apps.example.net", "apps.example.net")},
			pods: withOAuth("apps.example.net blue", "old.apps.example.net blue")},
		{name: "a name that ends with another cluster's domain", clusters: []testCluster{with(green, "apps.notblue.example.com"), blue},
			pods: withOAuth("apps.blue.example.com blue", "apps.notblue.example.com green")},

		{name: "the same apps domain belongs to the older cluster", clusters: []testCluster{with(green, "apps.example.net"), with(blue, "apps.example.net")},
			pods:     withOAuth("apps.example.net blue"),
			problems: []string{"green: NameConflict: apps domain apps.example.net is not served: apps.example.net is an apps domain of HostedCluster clusters/blue, which is older"}},
		{name: "the same apps domain on different VLANs", clusters: []testCluster{
			{name: "green", domain: "green.example.org", apps: []string{"apps.example.net"}, vlan: "b"},
			{name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, vlan: "a"},
		}, pods: withOAuth("apps.example.net blue"), vlans: map[string][]string{"clusters/b": withOAuth("apps.example.net green")},
			problems: []string{"green: NameConflict: ", "Infra clusters/green: VLANOverlap: "}},
		{name: "the same apps domain, and no Infra serves the older cluster", clusters: []testCluster{
			with(green, "apps.example.net"), {name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, absent: true},
		}, pods: withOAuth("apps.example.net green")},

		{name: "in the domain of an older cluster", clusters: []testCluster{with(green, "apps.blue.example.com"), blue},
			pods:     withOAuth("apps.blue.example.com blue"),
			problems: []string{"green: NameConflict: apps domain apps.blue.example.com is not served: it lies in blue.example.com, the domain of HostedCluster clusters/blue"}},
		{name: "in the domain of a younger cluster", clusters: []testCluster{blue, with(green, "apps.blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue"), problems: []string{"green: NameConflict: "}},
		{name: "in the apps domain of another cluster", clusters: []testCluster{blue, with(green, "shop.apps.blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue"), problems: []string{"green: NameConflict: "}},
		{name: "another cluster's domain", clusters: []testCluster{blue, with(green, "blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue"), problems: []string{"green: NameConflict: "}},
		{name: "in the domain of a cluster that no Infra serves", clusters: []testCluster{
			{name: "blue", domain: "blue.example.com", absent: true}, with(green, "apps.blue.example.com"),
		}, vlans: map[string][]string{"clusters/shared": withOAuth("apps.blue.example.com green")}, problems: []string{"green: NameConflict: "}},

		{name: "the parent of its cluster's domain", clusters: []testCluster{with(blue, "example.com", "apps.blue.example.com")},
			pods:     withOAuth("apps.blue.example.com blue"),
			problems: []string{"blue: NameConflict: apps domain example.com is not served: it contains blue.example.com, the cluster's own domain"}},
		{name: "the parent of a younger cluster's domain", clusters: []testCluster{blue, with(green, "example.com")},
			pods:     withOAuth("apps.blue.example.com blue"),
			problems: []string{"green: NameConflict: apps domain example.com is not served: it contains blue.example.com, the domain of HostedCluster clusters/blue"}},
		{name: "the parent of an older cluster's domain", clusters: []testCluster{with(green, "example.com"), blue},
			pods: withOAuth("apps.blue.example.com blue"), problems: []string{"green: NameConflict: "}},
		{name: "the parent of the domain of a cluster that no Infra serves", clusters: []testCluster{
			{name: "blue", domain: "blue.example.com", absent: true}, with(green, "example.com"),
		}, vlans: map[string][]string{"clusters/shared": withOAuth("example.com green")}, problems: []string{"green: NameConflict: "}},

		{name: "the parent of an older cluster's hostname", clusters: []testCluster{with(green, "apps.mgmt.example.net"), hosting(blue, "ignition-blue.apps.mgmt.example.net")},
			pods:     withOAuth("apps.blue.example.com blue"),
			problems: []string{"green: NameConflict: apps domain apps.mgmt.example.net is not served: it contains ignition-blue.apps.mgmt.example.net, a hostname of HostedCluster clusters/blue"}},
		{name: "the parent of a younger cluster's hostname", clusters: []testCluster{
			hosting(blue, "evil.apps.example.net"), with(green, "apps.example.net"),
		}, pods: withOAuth("apps.blue.example.com blue", "apps.example.net green"),
			problems: []string{"blue: NameConflict: hostname evil.apps.example.net is not served: it lies in apps.example.net, a domain of HostedCluster clusters/green"}},
		{name: "an older cluster's apps domain, in which a younger one has a hostname", clusters: []testCluster{
			hosting(blue, "shop.apps.green.example.org"), green,
		}, pods: withOAuth("apps.blue.example.com blue", "apps.green.example.org green"),
			problems: []string{"blue: NameConflict: hostname shop.apps.green.example.org is not served: it lies in apps.green.example.org, a domain of HostedCluster clusters/green"}},
		{name: "the parent of its own hostname", clusters: []testCluster{hosting(with(green, "apps.example.net"), "api.apps.example.net")},
			pods: withOAuth("apps.example.net green")},

		{name: "in an older cluster's apps domain", clusters: []testCluster{with(green, "shop.apps.example.net"), with(blue, "apps.example.net")},
			pods:     withOAuth("apps.example.net blue"),
			problems: []string{"green: NameConflict: apps domain shop.apps.example.net is not served: apps.example.net is an apps domain of HostedCluster clusters/blue, which is older"}},
		{name: "the parent of an older cluster's apps domain", clusters: []testCluster{with(green, "example.net"), with(blue, "apps.example.net")},
			pods:     withOAuth("apps.example.net blue"),
			problems: []string{"green: NameConflict: apps domain example.net is not served: it contains apps.example.net, an apps domain of HostedCluster clusters/blue"}},
		{name: "in an older cluster's apps domain that is not served", clusters: []testCluster{
			with(green, "shop.apps.example.net"), {name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, idle: true},
		}, pods: []string{"oauth-openshift.apps.example.net blue", "oauth-openshift.shop.apps.example.net green", "shop.apps.example.net green"}},
		{name: "in an older cluster's apps domain that is refused", clusters: []testCluster{with(green, "apps.example.com"), with(blue, "example.com")},
			pods: withOAuth("apps.example.com green"), problems: []string{"blue: NameConflict: "}},

		{name: "a cluster whose domain is in another cluster's domain", clusters: []testCluster{blue, {name: "flat", domain: "example.com"}},
			pods: withOAuth("apps.blue.example.com blue", "apps.example.com flat")},
		{name: "the domain of an older cluster, in its own domain", clusters: []testCluster{{name: "flat", domain: "example.com"}, {name: "apps", domain: "apps.example.com"}},
			pods:     withOAuth("apps.apps.example.com apps"),
			problems: []string{"flat: NameConflict: apps domain apps.example.com is not served: it lies in apps.example.com, the domain of HostedCluster clusters/apps"}},
		{name: "the domain of a younger cluster, in its own domain", clusters: []testCluster{{name: "apps", domain: "apps.example.com"}, {name: "flat", domain: "example.com"}},
			pods: withOAuth("apps.example.com flat"), problems: []string{
				"apps: NameConflict: cluster domain apps.example.com is not served where HostedCluster clusters/flat is",
				"flat: DomainOverlap: cluster domain apps.example.com of HostedCluster clusters/apps lies in apps.example.com, an apps domain of this cluster",
			}},

		{name: "in a domain that two clusters claim", clusters: []testCluster{
			with(green, "apps.blue.example.com"), {name: "blue2", domain: "blue.example.com"}, blue,
		}, pods: withOAuth("apps.blue.example.com blue"), problems: []string{
			"blue2: NameConflict: cluster domain blue.example.com is not served for this cluster: it belongs to HostedCluster clusters/blue",
			"green: NameConflict: apps domain apps.blue.example.com is not served: it lies in blue.example.com, the domain of HostedCluster clusters/blue",
		}},
		{name: "refused, of a cluster that no Infra serves", clusters: []testCluster{
			{name: "green", domain: "green.example.org", apps: []string{"apps.blue.example.com"}, absent: true}, blue,
		}, pods: withOAuth("apps.blue.example.com blue")},
		{name: "refused, with an explicit hostname in it", clusters: []testCluster{
			hosting(with(blue, "example.com"), "oauth-openshift.example.com"),
		}, pods: []string{"oauth-openshift.example.com blue"}, problems: []string{"blue: NameConflict: "}},

		{name: "in the domain of a cluster on another VLAN", clusters: []testCluster{
			{name: "green", domain: "green.example.org", apps: []string{"apps.blue.example.com"}, vlan: "b"}, {name: "blue", domain: "blue.example.com", vlan: "a"},
		}, pods: withOAuth("apps.blue.example.com blue"), vlans: map[string][]string{"clusters/b": withOAuth("apps.blue.example.com green")},
			problems: []string{"green: NameConflict: ", "Infra clusters/green: VLANOverlap: "}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var documents []string
			for i, d := range test.clusters {
				documents = append(documents, d.yaml(i))
			}
			s := model.Build(readObjects(t, documents...), model.Options{Apps: &model.AppsOptions{}})
			if got := servedAppsDomains(s.Pod()); !slices.Equal(got, test.pods) {
				t.Errorf("pods see\n%q, want\n%q", got, test.pods)
			}
			for _, v := range s.VLANs {
				want, ok := test.vlans[v.Name]
				if !ok {
					want = test.pods
				}
				if got := servedAppsDomains(v.View); !slices.Equal(got, want) && len(s.VLANs) == 1 || ok && !slices.Equal(got, want) {
					t.Errorf("VLAN %s sees\n%q, want\n%q", v.Name, got, want)
				}
			}
			for i, p := range s.Problems {
				if i >= len(test.problems) || !strings.HasPrefix(strings.TrimPrefix(p.String(), "HostedCluster clusters/"), test.problems[i]) {
					t.Errorf("unexpected problem %s", p)
				}
			}
			if len(s.Problems) < len(test.problems) {
				t.Errorf("got %d problems, want %q", len(s.Problems), test.problems)
			}
		})
	}
}
