package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

// published returns the names of a snapshot's clusters, and the messages about names that are not allowed.
func published(s *model.Snapshot) (names, refused []string) {
	for _, c := range s.Clusters {
		names = append(names, c.Domains...)
		names = append(names, c.AppsDomains...)
		for _, h := range c.Hostnames {
			names = append(names, h.Name)
		}
	}
	for _, p := range s.Problems {
		if p.Reason == model.ReasonNameNotAllowed {
			refused = append(refused, p.Message)
		}
	}
	return names, refused
}

func TestNameRules(t *testing.T) {
	const cluster = `
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: clusters}
spec:
  dns: {baseDomain: lab.example.com}
  kubeAPIServerDNSName: %s
`
	for _, tc := range []struct {
		name, hostname string
		rules          model.NameRules
		refused        string // "" if the name is published
	}{
		{"no rules", "api.mgmt.example.com", model.NameRules{}, ""},
		{"the management cluster's API", "api.mgmt.example.com", model.NameRules{Management: []string{"apps.mgmt.example.com"}},
			"hostname api.mgmt.example.com (spec.kubeAPIServerDNSName) is not published: it belongs to the management cluster"},
		{"a name below its domain", "git.mgmt.example.com", model.NameRules{Management: []string{"mgmt.example.com"}},
			"hostname git.mgmt.example.com (spec.kubeAPIServerDNSName) is not published: it lies in mgmt.example.com, a domain of the management cluster, and no admitted Route in namespace clusters-demo has this host: choose a name outside of that domain, or publish it with a Route"},
		{"a name beside its domain", "git.example.com", model.NameRules{Management: []string{"mgmt.example.com"}}, ""},
		{"the cluster's own domain below it", "kas.demo.lab.example.com", model.NameRules{Management: []string{"lab.example.com"}}, ""},
		{"an allowed domain", "kas.example.net", model.NameRules{Allowed: []string{"lab.example.com", "example.net"}}, ""},
		{"a domain that is not allowed", "kas.example.org", model.NameRules{Allowed: []string{"lab.example.com"}},
			"hostname kas.example.org (spec.kubeAPIServerDNSName) is not published: it lies in none of the allowed domains lab.example.com"},
		{"a name of the management cluster in an allowed domain", "api.mgmt.example.com", model.NameRules{Management: []string{"mgmt.example.com"}, Allowed: []string{"example.com"}},
			"hostname api.mgmt.example.com (spec.kubeAPIServerDNSName) is not published: it belongs to the management cluster"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := model.Build(readObjects(t, fmt.Sprintf(cluster, tc.hostname)), model.Options{Names: tc.rules})
			names, refused := published(s)
			if got := slices.Contains(names, tc.hostname); got != (tc.refused == "") {
				t.Errorf("published: %t; %q", got, refused)
			}
			if !slices.Contains(names, "api.demo.lab.example.com") || !slices.Contains(names, "apps.demo.lab.example.com") {
				t.Errorf("the cluster lost other names: %q", names)
			}
			if (len(refused) == 0) != (tc.refused == "") || !strings.HasPrefix(strings.Join(refused, "\n"), tc.refused) {
				t.Errorf("the problems are %q, want %q", refused, tc.refused)
			}
		})
	}
}

// TestDomainThatIsNotAllowed checks that all names derived from a cluster domain that is not allowed are
// removed, with a single problem.
func TestDomainThatIsNotAllowed(t *testing.T) {
	s := model.Build(readObjects(t, demoCluster, demoInfra("{enabled: true, source: Static, addresses: [192.0.2.100]}", "")), model.Options{
		Apps: &model.AppsOptions{}, Names: model.NameRules{Allowed: []string{"example.org"}},
	})
	names, refused := published(s)
	if len(names) > 0 || len(s.Pod().Names)+len(s.Pod().Apps)+len(s.Pod().Zones) > 0 {
		t.Errorf("published are %q and %+v", names, s.Pod())
	}
	if want := []string{"cluster domain demo.example.com is not published: it lies in none of the allowed domains example.org"}; !slices.Equal(refused, want) {
		t.Errorf("the problems are %q, want %q", refused, want)
	}
}

// TestRouteThatIsAdmittedLater builds successive snapshots with one Builder, as a Store does.
func TestRouteThatIsAdmittedLater(t *testing.T) {
	const route = `
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: oauth, namespace: clusters-demo}
spec: {host: oauth.mgmt.example.com, to: {kind: Service, name: oauth-openshift}}
status: {ingress: [{host: oauth.mgmt.example.com, routerName: %s, conditions: [{type: Admitted, status: "%s"}]}]}
`
	const other = `---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: theirs, namespace: apps}
spec: {host: oauth.mgmt.example.com, to: {kind: Service, name: theirs}}
status: {ingress: [{host: oauth.mgmt.example.com, routerName: %s, conditions: [{type: Admitted, status: "True"}]}]}
`
	cluster := readObjects(t, demoCluster).HostedClusters
	b := model.NewBuilder(model.Options{Names: model.NameRules{Management: []string{"mgmt.example.com"}}}, nil)
	before := &model.Objects{}
	for _, tc := range []struct {
		router, admitted string
		other            string // the router that admits another Route; empty for no such Route
		published        bool
	}{
		{"default", "False", "", false},
		{"default", "True", "", true},
		{"default", "False", "", false},
		{"router", "True", "", false}, // HyperShift's router admits every Route of its control plane
		{"default", "True", "default", false},
		{"default", "True", "router", false}, // outside of control planes, the name of the router does not matter
	} {
		text := fmt.Sprintf(route, tc.router, tc.admitted)
		if tc.other != "" {
			text += fmt.Sprintf(other, tc.other)
		}
		in := readObjects(t, text)
		in.HostedClusters = cluster
		names, refused := published(b.Update(changesOf(before, in)))
		before = in
		if got := slices.Contains(names, "oauth.mgmt.example.com"); got != tc.published || got != (len(refused) == 0) {
			t.Errorf("%+v: published %t, problems %q", tc, got, refused)
		}
	}
}
