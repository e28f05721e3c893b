package faults

func appsFaults() []Fault {
	return []Fault{
		{
			Name:  "apps address is missing",
			Break: infraStatus(`{"appsIngress": {"phase": "Degraded", "reason": "PoolMissing", "message": "x", "externalIP": "", "externalIPs": []}}`), Want: []string{"APP-001 fail"},
		},
		{
			Name:  "apps address is an outdated one",
			Break: infraStatus(`{"appsIngress": {"phase": "Degraded", "reason": "NotAnnounced", "message": "x"}}`), Want: []string{"APP-001 warn"},
		},
		{
			Name:  "hosted cluster does not answer control",
			Break: infraStatus(`{"appsIngress": {"phase": "Degraded", "reason": "HostedClusterUnreachable", "message": "x"}}`), Want: []string{"APP-002 warn"},
		},
		{
			Name:  "kubeconfig for control does not exist",
			Break: infraStatus(`{"appsIngress": {"phase": "Pending", "reason": "KubeconfigMissing", "message": "x", "externalIP": "", "externalIPs": []}}`), Want: []string{"APP-002 fail"},
		},
		{
			Name: "hosted cluster rejects the kubeconfig that HyperShift published", Want: []string{"APP-002 warn"}, Says: "delete secret demo-admin-kubeconfig",
			Break: func(s *Site) {
				s.PatchStatus(hostedKind, "$ns", "demo", `{"status": {"kubeconfig": {"name": "demo-admin-kubeconfig"}}}`)
				infraStatus(`{"appsIngress": {"phase": "Degraded", "reason": "KubeconfigRejected", "message": "x"}}`)(s)
			},
		},
		{
			Name: "hosted cluster rejects the kubeconfig that the Infra names", Want: []string{"APP-002 warn"}, Says: "create secret generic mine --from-file=kubeconfig=FILE",
			Break: func(s *Site) {
				s.Patch(infraKind, "$ns", "demo", `{"spec": {"appsIngress": {"kubeconfigSecretRef": {"name": "mine"}}}}`)
				s.markObserved()
				infraStatus(`{"appsIngress": {"phase": "Degraded", "reason": "KubeconfigRejected", "message": "x"}}`)(s)
			},
		},
		{Name: "apps address is not reported", Break: infraStatus(`{"appsIngress": null}`), Want: []string{"APP-001 fail"}},
		{
			Name: "apps address is outside of an OVN-Kubernetes VLAN", Want: []string{"APP-003 fail", "INF-002 warn"},
			Break: func(s *Site) {
				networkConfig(`{"cniVersion": "1.0.0", "name": "vlan", "netAttachDefName": "$ns/$vlan", "type": "ovn-k8s-cni-overlay", "topology": "localnet"}`)(s)
				infraStatus(`{"appsIngress": {"externalIP": "203.0.113.80", "externalIPs": ["203.0.113.80"]}}`)(s)
			},
		},
		{Name: "Service of the earlier operator exists", Break: operatorObject("v1", "Service", "spec: {ports: [{port: 67}]}"), Want: []string{"OLD-001 fail"}},
		{
			Name: "Deployment of the earlier operator exists",
			Break: operatorObject("apps/v1", "Deployment",
				"spec: {replicas: 0, selector: {matchLabels: {app: old}}, template: {metadata: {labels: {app: old}}, spec: {containers: [{name: old, image: registry.example.com/old}]}}}"),
			Want: []string{"OLD-001 fail"},
		},
	}
}

// operatorObject creates an object that the earlier operator owns, until Mend.
func operatorObject(apiVersion, kind, spec string) func(*Site) {
	return func(s *Site) {
		s.Add("apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: demo-old, namespace: $ns, ownerReferences: [{apiVersion: hostedcluster.densityops.com/v1alpha1, " +
			"kind: DHCPServer, name: demo-dhcp, uid: 5a0c8c1c-2a5b-4d0c-9d3b-0d5f5a1d2b11}]}\n" + spec + "\n")
	}
}
