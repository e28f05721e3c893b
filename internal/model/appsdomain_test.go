package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/golden"
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

// servedAppsDomains returns "domain of cluster" of the apps domains that are served in a view, and of the names of OAuth servers.
func servedAppsDomains(v *model.View) string {
	var list []string
	for _, a := range v.Apps {
		if a.Subtree && a.Served {
			list = append(list, a.Name+" of "+a.Cluster.Name)
		}
	}
	for _, n := range v.Names {
		if strings.HasPrefix(n.Name, "oauth-openshift.") {
			list = append(list, n.Name+" of "+n.Cluster.Name)
		}
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
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
	}{
		{name: "default apps domains", clusters: []testCluster{blue, green}},
		{name: "two apps domains, one outside of the cluster domain", clusters: []testCluster{with(blue, "apps.example.net", "apps.blue.example.com")}},
		{name: "the cluster domain itself", clusters: []testCluster{with(blue, "blue.example.com")}},
		{name: "two apps domains, the second in the first", clusters: []testCluster{with(blue, "apps.example.net", "old.apps.example.net")}},
		{name: "two apps domains, the first in the second", clusters: []testCluster{with(blue, "old.apps.example.net", "apps.example.net")}},
		{name: "a name that ends with another cluster's domain", clusters: []testCluster{with(green, "apps.notblue.example.com"), blue}},

		{name: "the same apps domain belongs to the older cluster", clusters: []testCluster{with(green, "apps.example.net"), with(blue, "apps.example.net")}},
		{name: "the same apps domain on different VLANs", clusters: []testCluster{
			{name: "green", domain: "green.example.org", apps: []string{"apps.example.net"}, vlan: "b"},
			{name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, vlan: "a"},
		}},
		{name: "the same apps domain, and no Infra serves the older cluster", clusters: []testCluster{
			with(green, "apps.example.net"), {name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, absent: true},
		}},

		{name: "in the domain of an older cluster", clusters: []testCluster{with(green, "apps.blue.example.com"), blue}},
		{name: "in the domain of a younger cluster", clusters: []testCluster{blue, with(green, "apps.blue.example.com")}},
		{name: "in the apps domain of another cluster", clusters: []testCluster{blue, with(green, "shop.apps.blue.example.com")}},
		{name: "another cluster's domain", clusters: []testCluster{blue, with(green, "blue.example.com")}},
		{name: "in the domain of a cluster that no Infra serves", clusters: []testCluster{
			{name: "blue", domain: "blue.example.com", absent: true}, with(green, "apps.blue.example.com"),
		}},

		{name: "the parent of its cluster's domain", clusters: []testCluster{with(blue, "example.com", "apps.blue.example.com")}},
		{name: "the parent of a younger cluster's domain", clusters: []testCluster{blue, with(green, "example.com")}},
		{name: "the parent of an older cluster's domain", clusters: []testCluster{with(green, "example.com"), blue}},
		{name: "the parent of the domain of a cluster that no Infra serves", clusters: []testCluster{
			{name: "blue", domain: "blue.example.com", absent: true}, with(green, "example.com"),
		}},

		{name: "the parent of an older cluster's hostname", clusters: []testCluster{with(green, "apps.mgmt.example.net"), hosting(blue, "ignition-blue.apps.mgmt.example.net")}},
		{name: "the parent of a younger cluster's hostname", clusters: []testCluster{hosting(blue, "evil.apps.example.net"), with(green, "apps.example.net")}},
		{name: "an older cluster's apps domain, in which a younger one has a hostname", clusters: []testCluster{
			hosting(blue, "shop.apps.green.example.org"), green,
		}},
		{name: "the parent of its own hostname", clusters: []testCluster{hosting(with(green, "apps.example.net"), "api.apps.example.net")}},

		{name: "in an older cluster's apps domain", clusters: []testCluster{with(green, "shop.apps.example.net"), with(blue, "apps.example.net")}},
		{name: "the parent of an older cluster's apps domain", clusters: []testCluster{with(green, "example.net"), with(blue, "apps.example.net")}},
		{name: "in an older cluster's apps domain that is not served", clusters: []testCluster{
			with(green, "shop.apps.example.net"), {name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, idle: true},
		}},
		{name: "in an older cluster's apps domain that is refused", clusters: []testCluster{with(green, "apps.example.com"), with(blue, "example.com")}},

		{name: "a cluster whose domain is in another cluster's domain", clusters: []testCluster{blue, {name: "flat", domain: "example.com"}}},
		{name: "the domain of an older cluster, in its own domain", clusters: []testCluster{{name: "flat", domain: "example.com"}, {name: "apps", domain: "apps.example.com"}}},
		{name: "the domain of a younger cluster, in its own domain", clusters: []testCluster{{name: "apps", domain: "apps.example.com"}, {name: "flat", domain: "example.com"}}},

		{name: "in a domain that two clusters claim", clusters: []testCluster{
			with(green, "apps.blue.example.com"), {name: "blue2", domain: "blue.example.com"}, blue,
		}},
		{name: "refused, of a cluster that no Infra serves", clusters: []testCluster{
			{name: "green", domain: "green.example.org", apps: []string{"apps.blue.example.com"}, absent: true}, blue,
		}},
		{name: "refused, with an explicit hostname in it", clusters: []testCluster{hosting(with(blue, "example.com"), "oauth-openshift.example.com")}},

		{name: "in the domain of a cluster on another VLAN", clusters: []testCluster{
			{name: "green", domain: "green.example.org", apps: []string{"apps.blue.example.com"}, vlan: "b"}, {name: "blue", domain: "blue.example.com", vlan: "a"},
		}},
	}
	var b strings.Builder
	for _, test := range tests {
		var documents []string
		for i, d := range test.clusters {
			documents = append(documents, d.yaml(i))
		}
		s := model.Build(readObjects(t, documents...), model.Options{Apps: &model.AppsOptions{}})
		fmt.Fprintf(&b, "%s\n\tpods: %s\n", test.name, servedAppsDomains(s.Pod()))
		for _, v := range s.VLANs {
			fmt.Fprintf(&b, "\tVLAN %s: %s\n", v.Name, servedAppsDomains(v.View))
		}
		for _, p := range s.Problems {
			fmt.Fprintf(&b, "\t%s\n", p)
		}
	}
	golden.Check(t, "testdata/"+t.Name()+".golden", b.String())
}
