package faults

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

func dnsFaults() []Fault {
	return []Fault{
		{Name: "DNS does not answer", Break: infraStatus(`{"componentStatus": {"dnsReady": false}}`), Want: []string{"DNS-001 fail"}},
		{Name: "names have no address", Break: infraStatus(`{"conditions": [` + condition("NamesServed", "False", "ProxyServiceMissing") + `]}`), Want: []string{"DNS-002 fail"}},
		{Name: "DNS and the cluster's DNS forward to each other", Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: kube-dns, namespace: kube-system}\nspec: {ports: [{port: 53, protocol: UDP}]}\n")
			forwardToClusterDNS(s, "kube-system", "kube-dns")
		}, Want: []string{"DNS-003 fail"}},
		{Name: "DNS and OpenShift's DNS forward to each other", Break: func(s *Site) {
			s.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: openshift-dns}}")
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: dns-default, namespace: openshift-dns}\nspec: {ports: [{port: 53, protocol: UDP}]}\n")
			forwardToClusterDNS(s, "openshift-dns", "dns-default")
		}, Want: []string{"DNS-003 fail"}},
		{Name: "DNS operator does not update the Corefile", Break: func(s *Site) {
			s.Apply("{apiVersion: v1, kind: Namespace, metadata: {name: openshift-dns}}")
			s.Add("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: dns-default, namespace: openshift-dns}\ndata: {Corefile: '.:5353 { errors }'}\n")
		}, Want: []string{"DNS-004 warn"}},
		{Name: "cluster's DNS does not forward", Break: func(s *Site) { s.Patch(dnsKind, "", "default", `{"spec": {"servers": []}}`) }, Want: []string{"DNS-004 warn"}},
		{Name: "cluster's DNS forwards to an outdated address", Break: func(s *Site) {
			s.Patch(dnsKind, "", "default", `{"spec": {"servers": [{"name": "oooi", "zones": ["demo.$ns.example.com"], "forwardPlugin": {"upstreams": ["10.0.0.199"]}}]}}`)
		}, Want: []string{"DNS-004 warn"}},
		{Name: "Service of DNS does not exist", Break: func(s *Site) { s.Remove(serviceKind, "$ns", "demo-dns") }, Want: []string{"INF-002 fail", "DNS-004 warn"}},
	}
}

// infraStatus returns a function that patches the Infra's status. Only the test writes it at a simulated site.
func infraStatus(body string) func(*Site) {
	return func(s *Site) { s.PatchStatus(infraKind, "$ns", "demo", `{"status": `+body+`}`) }
}

// forwardToClusterDNS makes a Service of the cluster's DNS the upstream resolver of our DNS.
func forwardToClusterDNS(s *Site, namespace, service string) {
	address, _, _ := unstructured.NestedString(s.Get(serviceKind, namespace, service).Object, "spec", "clusterIP")
	s.Patch(infraKind, "$ns", "demo", `{"spec": {"networkConfig": {"dnsServers": ["`+address+`"]}}}`)
	s.markObserved()
}
