package faults

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/lab"
)

// accessFaults returns faults of our daemons' rights, and of those of doctor's user.
func accessFaults() []Fault {
	bindingKind := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"}
	roleKind := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}
	return []Fault{
		{Name: "backend was added in another namespace", Want: []string{"ACC-001 fail", "INF-002 warn"}, Break: func(s *Site) {
			s.Add("apiVersion: v1\nkind: Namespace\nmetadata: {name: $ns-shop}\n")
			s.Add("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: $ns-shop}\nspec: {ports: [{port: 443}]}\n---\n" +
				"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, namespace: $ns-shop, labels: {kubernetes.io/service-name: web}}\naddressType: IPv4\n" +
				"ports: [{port: 443}]\nendpoints: [{addresses: [10.128.0.8], conditions: {ready: true}}]\n")
			s.Patch(proxyKind, "$ns", "demo", `{"spec": {"backends": [{"name": "shop", "hostname": "shop.example.com", "port": 443, "protocol": "TLS", "targetService": "web", "targetPort": 443, "targetNamespace": "$ns-shop"}]}}`)
			s.markObserved()
		}},
		{Name: "proxy has no rights in the control plane's namespace", Want: []string{"ACC-001 fail"}, Says: "-demo-proxy does not exist, or was changed: the ServiceAccount is not allowed to list services in namespace", Break: func(s *Site) {
			s.Remove(bindingKind, "${ns}-demo", "oooi-$ns-demo-proxy")
		}},
		{Name: "DHCP has no right to read VMs", Want: []string{"ACC-001 fail"}, Break: func(s *Site) {
			s.Remove(bindingKind, "${ns}-demo", "oooi-$ns-demo-dhcp")
		}},
		{Name: "user has no right to list NodePools", As: "narrow", Inconclusive: true, Want: []string{"API-002 warn"}, Break: func(s *Site) { s.grantAllExcept("nodepools") }},
		{Name: "Role of DHCP does not exist", Want: []string{"ACC-001 fail"}, Break: func(s *Site) {
			s.Remove(roleKind, "$ns", "oooi-$ns-demo-dhcp")
		}},
	}
}

// grantAllExcept grants user narrow the rights of ClusterRole oooi-doctor, except to one resource, until Mend.
func (s *Site) grantAllExcept(resource string) {
	s.Helper()
	text := lab.ReadFile(s, "manifests", "doctor", "clusterrole.yaml")
	role := &rbacv1.ClusterRole{}
	if err := yaml.Unmarshal(text, role); err != nil {
		s.Fatal(err)
	}
	role.Name = s.Namespace + "-narrow"
	for i := range role.Rules {
		role.Rules[i].Resources = slices.DeleteFunc(role.Rules[i].Resources, func(r string) bool { return r == resource })
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "narrow"}},
	}
	for _, o := range []client.Object{role, binding} {
		if err := s.Client.Create(s.Context(), o); err != nil {
			s.Fatal(err)
		}
		s.Undo(func() {
			if err := s.Client.Delete(s.Context(), o); err != nil {
				s.Fatal(err)
			}
		})
	}
}
