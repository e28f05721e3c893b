package lab

import (
	"fmt"
	"strings"
)

// Role returns a Role and its RoleBinding to a user or, without a namespace, a ClusterRole and its ClusterRoleBinding. The rules are YAML.
// A user can be a ServiceAccount, system:serviceaccount:NAMESPACE:NAME.
func Role(namespace, name, user string, rules ...string) string {
	kind := "ClusterRole"
	if namespace != "" {
		kind, namespace = "Role", ", namespace: "+namespace
	}
	return fmt.Sprintf(`apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]s
metadata: {name: %[2]s%[3]s}
rules: [%[5]s]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: %[1]sBinding
metadata: {name: %[2]s%[3]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: %[1]s, name: %[2]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[4]q}]
---
`, kind, name, namespace, user, strings.Join(rules, ", "))
}
