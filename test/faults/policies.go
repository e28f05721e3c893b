package faults

import "strings"

// policyFaults returns faults of NetworkPolicies. The API server only stores them: nothing enforces them here.
func policyFaults() []Fault {
	return []Fault{
		{Name: "NetworkPolicy denies all egress", Break: addPolicy("$ns", "{podSelector: {}, policyTypes: [Egress]}"), Want: []string{"NET-006 fail"}},
		{
			Name:  "NetworkPolicy admits egress to pods only",
			Break: addPolicy("$ns", "{podSelector: {matchLabels: {app.kubernetes.io/component: dhcp}}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}}]}]}"),
			Want:  []string{"NET-006 fail"},
		},
		{
			Name: "NetworkPolicy admits egress to a previous address of the API server",
			Break: func(s *Site) {
				s.Add("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: kubernetes-1, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}\naddressType: IPv4\n" +
					"ports: [{name: https, port: 6443}]\nendpoints: [{addresses: [203.0.113.8]}]\n")
				addPolicy("$ns", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 203.0.113.7/32}}]}, {ports: [{protocol: UDP}, {protocol: TCP, port: 53}]}, {to: [{namespaceSelector: {}}]}]}")(s)
			},
			Want: []string{"NET-006 fail"},
		},
		{
			Name:  "NetworkPolicy admits no egress to upstream resolvers",
			Break: addPolicy("$ns", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: TCP}]}]}"),
			Want:  []string{"NET-006 fail"},
		},
		{
			Name: "NetworkPolicy admits egress to DNS of the cluster only",
			Break: addPolicy("$ns", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{protocol: TCP}]}, "+
				"{to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}}], ports: [{protocol: UDP, port: 53}]}]}"),
			Want: []string{"NET-006 fail"},
		},
		{
			Name: "NetworkPolicy admits no egress of the proxy to the control plane",
			Break: addPolicy("$ns", "{podSelector: {matchLabels: {app.kubernetes.io/component: proxy}}, policyTypes: [Egress], "+
				"egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.128.0.0/14]}}]}]}"),
			Want: []string{"NET-006 fail"},
		},
		{Name: "NetworkPolicy denies all egress of control", Break: addPolicy("oooi-system", "{podSelector: {}, policyTypes: [Egress]}"), Want: []string{"NET-006 fail"}},
		{
			Name:  "NetworkPolicy of DNS was edited and admits no queries",
			Break: editPolicy("demo-dns", `[{"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 9153}]}]`),
			Want:  []string{"NET-007 fail", "INF-002 fail"},
		},
		{
			Name:  "NetworkPolicy of DHCP was edited and admits only the monitoring",
			Break: editPolicy("demo-dhcp", `[{"from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}], "ports": [{"protocol": "TCP", "port": 9903}]}]`),
			Want:  []string{"NET-007 fail", "INF-002 fail"},
		},
		{
			Name:  "NetworkPolicy of the proxy was edited and admits no clients",
			Break: editPolicy("demo-proxy", `[{"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 9901}, {"protocol": "TCP", "port": 9902}]}]`),
			Want:  []string{"NET-007 fail", "INF-002 fail"},
		},
		{
			Name:  "NetworkPolicy of the proxy was edited and admits no scrapes",
			Break: editPolicy("demo-proxy", `[{"ports": [{"protocol": "TCP", "port": 80, "endPort": 8999}]}]`),
			Want:  []string{"INF-002 fail", "NET-007 warn"},
		},
		{Name: "NetworkPolicy denies all ingress of control", Break: func(s *Site) {
			s.Remove(policyKind, "oooi-system", "oooi-control")
			addPolicy("oooi-system", "{podSelector: {}, policyTypes: [Ingress]}")(s)
		}, Want: []string{"NET-007 warn"}},
		{Name: "NetworkPolicy of a backend's namespace does not admit the proxy", Break: func(s *Site) {
			s.addShop()
			addPolicy("$ns-shop", "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}]}]}")(s)
		}, Want: []string{"PRX-005 fail", "INF-002 warn"}},
		{Name: "NetworkPolicy admits no egress of DNS and that of the proxy was edited", Break: func(s *Site) {
			addPolicy("$ns", "{podSelector: {matchLabels: {app.kubernetes.io/component: dns}}, policyTypes: [Egress]}")(s)
			editPolicy("demo-proxy", `[]`)(s)
		}, Want: []string{"NET-006 fail", "NET-007 fail", "INF-002 fail"}},
	}
}

// addPolicy returns a function that creates a NetworkPolicy, which setup does not render.
func addPolicy(namespace, spec string) func(*Site) {
	return func(s *Site) {
		s.Add("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a-foreign-policy, namespace: " + namespace + "}\nspec: " + spec + "\n")
	}
}

// editPolicy returns a function that replaces the ingress rules of a NetworkPolicy of setup.
func editPolicy(name, ingress string) func(*Site) {
	return func(s *Site) { s.Patch(policyKind, "$ns", name, `{"spec": {"ingress": `+ingress+`}}`) }
}

// addShop creates a backend of the proxy in a namespace of its own, which the proxy has the right to read.
func (s *Site) addShop() {
	s.Helper()
	s.Add("apiVersion: v1\nkind: Namespace\nmetadata: {name: $ns-shop}\n")
	s.Add(strings.Join([]string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: $ns-shop}\nspec: {ports: [{port: 443}], selector: {app: web}}\n",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: $ns-shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\n" +
			"ports: [{name: \"\", port: 443, protocol: TCP}]\nendpoints: [{addresses: [10.128.0.8], conditions: {ready: true}}]\n",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: proxy, namespace: $ns-shop}\n" +
			"rules: [{apiGroups: [\"\"], resources: [services], verbs: [get, list, watch]}, {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}]\n",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: proxy, namespace: $ns-shop}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: proxy}\nsubjects: [{kind: ServiceAccount, name: demo-proxy, namespace: $ns}]\n",
	}, "---\n"))
	s.Patch(proxyKind, "$ns", "demo", `{"spec": {"backends": [{"name": "shop", "hostname": "shop.example.com", "port": 443, "protocol": "TLS", "targetService": "web", "targetPort": 443, "targetNamespace": "$ns-shop"}]}}`)
	s.markObserved()
}
