package faults

import "k8s.io/apimachinery/pkg/runtime/schema"

// accessFaults are in the rights of our daemons.
func accessFaults() []Fault {
	bindingKind := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}
	roleKind := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}
	return []Fault{
		{Name: "a backend in a namespace that setup knows nothing of", Want: []string{"ACC-001 fail"}, Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: Namespace\nmetadata: {name: $ns-shop}\n")
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: $ns-shop}\nspec: {ports: [{port: 443}]}\n---\n" +
				"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: $ns-shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\n" +
				"ports: [{port: 443}]\nendpoints: [{addresses: [10.128.0.8], conditions: {ready: true}}]\n")
			s.Patch(proxyKind, "$ns", "demo", `{"spec": {"backends": [{"name": "shop", "hostname": "shop.example.com", "port": 443, "protocol": "TLS", "targetService": "web", "targetPort": 443, "targetNamespace": "$ns-shop"}]}}`)
			s.seen()
		}},
		{Name: "a proxy without its rights in the control plane's namespace", Want: []string{"ACC-001 fail"}, Break: func(s *Site) {
			s.Remove(bindingKind, "${ns}-demo", "oooi-$ns-demo-proxy")
		}},
		{Name: "a Role of DHCP from which leases were taken", Want: []string{"ACC-001 fail"}, Break: func(s *Site) {
			s.Remove(roleKind, "$ns", "oooi-$ns-demo-dhcp")
		}},
	}
}
