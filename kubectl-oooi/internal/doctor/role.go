package doctor

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// RoleName is the name of the ClusterRole that Role returns.
const RoleName = "oooi-doctor"

// Role returns a ClusterRole with exactly the rights that the Reads of the checks need. It grants no right to
// Secrets.
func Role(checks []Check) *rbacv1.ClusterRole {
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: RoleName},
	}
	var rules []rbacv1.PolicyRule
	for _, c := range checks {
		for _, r := range c.Reads {
			for _, rule := range rulesOf(r.Kind) {
				if !slices.ContainsFunc(rules, func(known rbacv1.PolicyRule) bool { return known.String() == rule.String() }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(strings.Compare(a.APIGroups[0], b.APIGroups[0]), slices.Compare(a.Verbs, b.Verbs), slices.Compare(a.ResourceNames, b.ResourceNames), strings.Compare(a.Resources[0], b.Resources[0]))
	})
	for _, rule := range rules { // merge rules with the same verbs
		last := len(role.Rules) - 1
		if last >= 0 && role.Rules[last].APIGroups[0] == rule.APIGroups[0] && slices.Equal(role.Rules[last].Verbs, rule.Verbs) && role.Rules[last].ResourceNames == nil && rule.ResourceNames == nil {
			role.Rules[last].Resources = append(role.Rules[last].Resources, rule.Resources...)
			continue
		}
		role.Rules = append(role.Rules, rule)
	}
	return role
}

// rulesOf returns the rights to read a kind.
func rulesOf(kind Kind) []rbacv1.PolicyRule {
	rule := func(resource string, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{kind.Group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
	}
	resource := resourceOf(kind)
	switch kind {
	case podPages:
		return []rbacv1.PolicyRule{rule("pods/proxy", nil, "get")}
	case podLogs:
		return []rbacv1.PolicyRule{rule("pods/log", nil, "get")}
	case accessReviews:
		return []rbacv1.PolicyRule{rule(resource, nil, "create")}
	case namespaces:
		return []rbacv1.PolicyRule{rule(resource, nil, "get")}
	case clusterDNS, clusterIngress:
		return []rbacv1.PolicyRule{rule(resource, []string{"cluster"}, "get")}
	case constraints: // every user may discover kinds
		return nil
	case crds:
		return []rbacv1.PolicyRule{rule(resource, ourCRDs(), "get")}
	case configMaps:
		names := []string{coreConfig.Name, operatorConfig.Name, rootCA}
		for _, c := range read.MultusConfigs {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		return []rbacv1.PolicyRule{rule(resource, nil, "list"), rule(resource, names, "get")}
	case infras: // a named Infra is read with get
		return []rbacv1.PolicyRule{rule(resource, nil, "get", "list")}
	default:
		return []rbacv1.PolicyRule{rule(resource, nil, "list")}
	}
}

// resourceOf returns the resource name of a kind.
func resourceOf(kind Kind) string {
	switch kind {
	case attachments:
		return "network-attachment-definitions"
	case podMetrics:
		return "pods"
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural.Resource
}
