package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

// domains is a hosted cluster with its domain, the apps domains that it gives itself,
// and a hostname. Clusters in a list are of growing age.
type domains struct {
	name, domain string
	apps         []string
	host         string
	vlan         string // empty for the one that all share
	idle         bool   // nobody asks for its applications
	absent       bool   // no Infra serves it
}

// yaml returns the HostedCluster and its Infra.
func (d domains) yaml(age int) string {
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

// subtrees lists whose the apps domains and the OAuth servers in them are, in a view.
func subtrees(v *model.View) []string {
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

// withOAuth is what subtrees lists of apps domains that their clusters have wholly.
func withOAuth(list ...string) []string {
	for _, entry := range slices.Clone(list) {
		list = append(list, "oauth-openshift."+entry)
	}
	slices.Sort(list)
	return list
}

func TestAppsDomains(t *testing.T) {
	blue := domains{name: "blue", domain: "blue.example.com"}
	green := domains{name: "green", domain: "green.example.org"}
	with := func(d domains, apps ...string) domains {
		d.apps = apps
		return d
	}
	hosting := func(d domains, host string) domains {
		d.host = host
		return d
	}
	tests := []struct {
		name     string
		clusters []domains // the youngest first
		pods     []string
		vlans    map[string][]string // where they see something else than pods
		says     []string
	}{
		{name: "the usual ones", clusters: []domains{blue, green}, pods: withOAuth("apps.blue.example.com blue", "apps.green.example.org green")},
		{name: "two, of which one is outside of the cluster domain", clusters: []domains{with(blue, "apps.example.net", "apps.blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue", "apps.example.net blue")},
		{name: "the cluster domain itself", clusters: []domains{with(blue, "blue.example.com")}, pods: withOAuth("blue.example.com blue")},
		{name: "one inside the other", clusters: []domains{with(blue, "apps.example.net", "old.apps.example.net")},
			pods: withOAuth("apps.example.net blue", "old.apps.example.net blue")},
		{name: "one around the other", clusters: []domains{with(blue, "old.apps.example.net", "apps.example.net")},
			pods: withOAuth("apps.example.net blue", "old.apps.example.net blue")},
		{name: "a name that only ends like another's", clusters: []domains{with(green, "apps.notblue.example.com"), blue},
			pods: withOAuth("apps.blue.example.com blue", "apps.notblue.example.com green")},

		{name: "one that two clusters have is the older one's", clusters: []domains{with(green, "apps.example.net"), with(blue, "apps.example.net")},
			pods: withOAuth("apps.example.net blue"),
			says: []string{"green: NameConflict: apps domain apps.example.net is not served: apps.example.net is an apps domain of HostedCluster clusters/blue, which is older"}},
		{name: "one that two clusters have on VLANs of their own", clusters: []domains{
			{name: "green", domain: "green.example.org", apps: []string{"apps.example.net"}, vlan: "b"},
			{name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, vlan: "a"},
		}, pods: withOAuth("apps.example.net blue"), vlans: map[string][]string{"clusters/b": withOAuth("apps.example.net green")},
			says: []string{"green: NameConflict: ", "Infra clusters/green: VLANOverlap: "}},
		{name: "one that two clusters have, of which the older serves none", clusters: []domains{
			with(green, "apps.example.net"), {name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, absent: true},
		}, pods: withOAuth("apps.example.net green")},

		{name: "one in another cluster's domain, by the younger", clusters: []domains{with(green, "apps.blue.example.com"), blue},
			pods: withOAuth("apps.blue.example.com blue"),
			says: []string{"green: NameConflict: apps domain apps.blue.example.com is not served: it lies in blue.example.com, the domain of HostedCluster clusters/blue"}},
		{name: "one in another cluster's domain, by the older", clusters: []domains{blue, with(green, "apps.blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue"), says: []string{"green: NameConflict: "}},
		{name: "one in another cluster's apps domain", clusters: []domains{blue, with(green, "shop.apps.blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue"), says: []string{"green: NameConflict: "}},
		{name: "another cluster's domain", clusters: []domains{blue, with(green, "blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue"), says: []string{"green: NameConflict: "}},
		{name: "one in the domain of a cluster that nobody serves", clusters: []domains{
			{name: "blue", domain: "blue.example.com", absent: true}, with(green, "apps.blue.example.com"),
		}, vlans: map[string][]string{"clusters/shared": withOAuth("apps.blue.example.com green")}, says: []string{"green: NameConflict: "}},

		{name: "the parent of its own cluster's domain", clusters: []domains{with(blue, "example.com", "apps.blue.example.com")},
			pods: withOAuth("apps.blue.example.com blue"),
			says: []string{"blue: NameConflict: apps domain example.com is not served: it holds blue.example.com, the cluster's own domain"}},
		{name: "the parent of another cluster's domain, by the older", clusters: []domains{blue, with(green, "example.com")},
			pods: withOAuth("apps.blue.example.com blue"),
			says: []string{"green: NameConflict: apps domain example.com is not served: it holds blue.example.com, the domain of HostedCluster clusters/blue"}},
		{name: "the parent of another cluster's domain, by the younger", clusters: []domains{with(green, "example.com"), blue},
			pods: withOAuth("apps.blue.example.com blue"), says: []string{"green: NameConflict: "}},
		{name: "the parent of a domain that nobody serves", clusters: []domains{
			{name: "blue", domain: "blue.example.com", absent: true}, with(green, "example.com"),
		}, vlans: map[string][]string{"clusters/shared": withOAuth("example.com green")}, says: []string{"green: NameConflict: "}},

		{name: "the parent of an older cluster's hostname", clusters: []domains{with(green, "apps.mgmt.example.net"), hosting(blue, "ignition-blue.apps.mgmt.example.net")},
			pods: withOAuth("apps.blue.example.com blue"),
			says: []string{"green: NameConflict: apps domain apps.mgmt.example.net is not served: it holds ignition-blue.apps.mgmt.example.net, a hostname of HostedCluster clusters/blue"}},
		{name: "the parent of a younger cluster's hostname: that one ends nobody's applications", clusters: []domains{
			hosting(blue, "evil.apps.example.net"), with(green, "apps.example.net"),
		}, pods: withOAuth("apps.blue.example.com blue", "apps.example.net green"),
			says: []string{"blue: NameConflict: hostname evil.apps.example.net is not served: it lies in apps.example.net, a domain of HostedCluster clusters/green"}},
		{name: "an older cluster's own, in which a younger one has a hostname", clusters: []domains{
			hosting(blue, "shop.apps.green.example.org"), green,
		}, pods: withOAuth("apps.blue.example.com blue", "apps.green.example.org green"),
			says: []string{"blue: NameConflict: hostname shop.apps.green.example.org is not served: it lies in apps.green.example.org, a domain of HostedCluster clusters/green"}},
		{name: "the parent of a hostname of its own", clusters: []domains{hosting(with(green, "apps.example.net"), "api.apps.example.net")},
			pods: withOAuth("apps.example.net green")},

		{name: "one inside an older cluster's", clusters: []domains{with(green, "shop.apps.example.net"), with(blue, "apps.example.net")},
			pods: withOAuth("apps.example.net blue"),
			says: []string{"green: NameConflict: apps domain shop.apps.example.net is not served: apps.example.net is an apps domain of HostedCluster clusters/blue, which is older"}},
		{name: "one around an older cluster's", clusters: []domains{with(green, "example.net"), with(blue, "apps.example.net")},
			pods: withOAuth("apps.example.net blue"),
			says: []string{"green: NameConflict: apps domain example.net is not served: it holds apps.example.net, an apps domain of HostedCluster clusters/blue"}},
		{name: "one inside an older cluster's that is not served", clusters: []domains{
			with(green, "shop.apps.example.net"), {name: "blue", domain: "blue.example.com", apps: []string{"apps.example.net"}, idle: true},
		}, pods: []string{"oauth-openshift.apps.example.net blue", "oauth-openshift.shop.apps.example.net green", "shop.apps.example.net green"}},
		{name: "one inside an older cluster's that is refused", clusters: []domains{with(green, "apps.example.com"), with(blue, "example.com")},
			pods: withOAuth("apps.example.com green"), says: []string{"blue: NameConflict: "}},

		{name: "a cluster inside another's domain keeps its own", clusters: []domains{blue, {name: "flat", domain: "example.com"}},
			pods: withOAuth("apps.blue.example.com blue", "apps.example.com flat")},
		{name: "the domain of an older cluster, though inside its own", clusters: []domains{{name: "flat", domain: "example.com"}, {name: "apps", domain: "apps.example.com"}},
			pods: withOAuth("apps.apps.example.com apps"),
			says: []string{"flat: NameConflict: apps domain apps.example.com is not served: it lies in apps.example.com, the domain of HostedCluster clusters/apps"}},
		{name: "the domain of a younger cluster, inside its own", clusters: []domains{{name: "apps", domain: "apps.example.com"}, {name: "flat", domain: "example.com"}},
			pods: withOAuth("apps.apps.example.com apps", "apps.example.com flat")},

		{name: "one in a domain that two clusters claim", clusters: []domains{
			with(green, "apps.blue.example.com"), {name: "blue2", domain: "blue.example.com"}, blue,
		}, pods: withOAuth("apps.blue.example.com blue"), says: []string{
			"blue2: NameConflict: cluster domain blue.example.com belongs to HostedCluster clusters/blue",
			"green: NameConflict: apps domain apps.blue.example.com is not served: it lies in blue.example.com, the domain of HostedCluster clusters/blue",
		}},
		{name: "one that would be refused, of a cluster that nobody serves", clusters: []domains{
			{name: "green", domain: "green.example.org", apps: []string{"apps.blue.example.com"}, absent: true}, blue,
		}, pods: withOAuth("apps.blue.example.com blue")},
		{name: "one that is refused, with a hostname in it that is no convention", clusters: []domains{
			hosting(with(blue, "example.com"), "oauth-openshift.example.com"),
		}, pods: []string{"oauth-openshift.example.com blue"}, says: []string{"blue: NameConflict: "}},

		{name: "another VLAN's clusters take nothing", clusters: []domains{
			{name: "green", domain: "green.example.org", apps: []string{"apps.blue.example.com"}, vlan: "b"}, {name: "blue", domain: "blue.example.com", vlan: "a"},
		}, pods: withOAuth("apps.blue.example.com blue"), vlans: map[string][]string{"clusters/b": withOAuth("apps.blue.example.com green")},
			says: []string{"green: NameConflict: ", "Infra clusters/green: VLANOverlap: "}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var documents []string
			for i, d := range test.clusters {
				documents = append(documents, d.yaml(i))
			}
			s := model.Build(read(t, documents...), model.Options{Apps: &model.AppsOptions{}})
			if got := subtrees(s.Pod); !slices.Equal(got, test.pods) {
				t.Errorf("pods see\n%q, want\n%q", got, test.pods)
			}
			for _, v := range s.VLANs {
				want, ok := test.vlans[v.Name]
				if !ok {
					want = test.pods
				}
				if got := subtrees(v.View); !slices.Equal(got, want) && len(s.VLANs) == 1 || ok && !slices.Equal(got, want) {
					t.Errorf("VLAN %s sees\n%q, want\n%q", v.Name, got, want)
				}
			}
			for i, p := range s.Problems {
				if i >= len(test.says) || !strings.HasPrefix(strings.TrimPrefix(p.String(), "HostedCluster clusters/"), test.says[i]) {
					t.Errorf("unexpected problem %s", p)
				}
			}
			if len(s.Problems) < len(test.says) {
				t.Errorf("of %q only %d are said", test.says, len(s.Problems))
			}
		})
	}
}
