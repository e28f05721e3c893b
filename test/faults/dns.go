package faults

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func dnsFaults() []Fault {
	return []Fault{
		{Name: "DNS that does not answer", Break: infraStatus(`{"componentStatus": {"dnsReady": false}}`), Want: []string{"DNS-001 fail"}},
		{Name: "names without an address", Break: infraStatus(`{"conditions": [` + condition("NamesServed", "False", "ProxyServiceMissing") + `]}`), Want: []string{"DNS-002 fail"}},
		{Name: "a cluster DNS that is asked, and asks us", Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: kube-dns, namespace: kube-system}\nspec: {ports: [{port: 53, protocol: UDP}]}\n")
			roundAndRound(s, "kube-system", "kube-dns")
		}, Want: []string{"DNS-003 fail"}},
		{Name: "a cluster DNS of OpenShift that is asked, and asks us", Break: func(s *Site) {
			s.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: openshift-dns}}")
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: dns-default, namespace: openshift-dns}\nspec: {ports: [{port: 53, protocol: UDP}]}\n")
			roundAndRound(s, "openshift-dns", "dns-default")
		}, Want: []string{"DNS-003 fail"}},
		{Name: "a DNS operator that does not write what it is told", Break: func(s *Site) {
			s.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: openshift-dns}}")
			s.Add("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dns-default, namespace: openshift-dns}\ndata: {Corefile: '.:5353 { errors }'}\n")
		}, Want: []string{"DNS-004 warn"}},
		{Name: "a cluster DNS that does not forward", Break: func(s *Site) { s.Patch(dnsKind, "", "default", `{"spec": {"servers": []}}`) }, Want: []string{"DNS-004 warn"}},
		{Name: "a cluster DNS that forwards to an address of before", Break: func(s *Site) {
			s.Patch(dnsKind, "", "default", `{"spec": {"servers": [{"name": "oooi", "zones": ["demo.$ns.example.com"], "forwardPlugin": {"upstreams": ["10.0.0.199"]}}]}}`)
		}, Want: []string{"DNS-004 warn"}},
		{Name: "no Service for DNS", Break: func(s *Site) { s.Remove(serviceKind, "$ns", "demo-dns") }, Want: []string{"INF-002 fail", "DNS-004 warn"}},
	}
}

// infraStatus changes the status of the Infra, which nobody but the test writes.
func infraStatus(body string) func(*Site) {
	return func(s *Site) { s.PatchStatus(infraKind, "$ns", "demo", `{"status": `+body+`}`) }
}

// roundAndRound has DNS ask the cluster's for what it does not know.
func roundAndRound(s *Site, namespace, service string) {
	address, _, _ := unstructured.NestedString(s.There(serviceKind, namespace, service).Object, "spec", "clusterIP")
	s.Patch(infraKind, "$ns", "demo", `{"spec": {"networkConfig": {"dnsServers": ["`+address+`"]}}}`)
	s.seen()
}
