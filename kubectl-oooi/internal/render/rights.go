package render

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// read is what a daemon needs that follows objects: none is ever asked for by itself.
var read = []string{"list", "watch"}

// rule is a right in a namespace; in all of them where that is not known yet.
type rule struct {
	namespace string
	rbacv1.PolicyRule
}

// rights are the ServiceAccount of a component with a Role for each namespace that it has to
// do with.
func (in *Input) rights(component string, rules ...rule) []runtime.Object {
	meta := in.meta(component, in.name(component))
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}
	account := &corev1.ServiceAccount{ObjectMeta: meta, AutomountServiceAccountToken: new(false)}
	return append([]runtime.Object{account}, in.grant(component, subject, rules)...)
}

// grant gives a subject rights, by a Role in each namespace.
func (in *Input) grant(component string, subject rbacv1.Subject, rules []rule) []runtime.Object {
	// Roles in other namespaces than the Infra's stand beside those of other Infras.
	name := roleName(in.Infra, component)
	slices.SortStableFunc(rules, func(a, b rule) int { return cmp.Compare(a.namespace, b.namespace) })
	var list []runtime.Object
	for len(rules) > 0 {
		namespace := rules[0].namespace
		var here []rbacv1.PolicyRule
		for len(rules) > 0 && rules[0].namespace == namespace {
			here, rules = append(here, rules[0].PolicyRule), rules[1:]
		}
		meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: in.labels(component)}
		if namespace == "" {
			list = append(list,
				&rbacv1.ClusterRole{ObjectMeta: meta, Rules: here},
				&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
			continue
		}
		list = append(list,
			&rbacv1.Role{ObjectMeta: meta, Rules: here},
			&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
	}
	return list
}

func roleName(infra *v1alpha1.Infra, component string) string {
	return strings.Join([]string{partOf, infra.Namespace, infra.Name, component}, "-")
}

// controlPart stands in names for control.
const controlPart = "control"

// ControlRole names the Roles by which control looks after the applications of an Infra.
func ControlRole(infra *v1alpha1.Infra) string { return roleName(infra, controlPart) }

// readRules are what the model takes, for this one Infra.
func (in *Input) readRules() []rule {
	hosted, plane := in.HostedCluster, in.ControlPlane
	clusters := rbacv1.PolicyRule{APIGroups: []string{"hypershift.openshift.io"}, Resources: []string{"hostedclusters"}, Verbs: read}
	if hosted.Name == "" || plane == "" {
		hosted.Namespace, plane = "", "" // any may become the Infra's
	} else {
		clusters.ResourceNames = []string{hosted.Name}
	}
	services := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: read}
	rules := []rule{
		{hosted.Namespace, clusters},
		{plane, rbacv1.PolicyRule{APIGroups: []string{"route.openshift.io"}, Resources: []string{"routes"}, Verbs: read}},
		{plane, services},
	}
	infras := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"infras"}, Verbs: read}
	if plane == "" {
		rules = append(rules, rule{"", infras})
	} else {
		infras.ResourceNames = []string{in.Infra.Name}
		rules = append(rules, rule{in.Infra.Namespace, infras}, rule{in.Infra.Namespace, services})
	}
	if in.Infra.Spec.AppsIngress.IsEnabled() {
		rules = append(rules, rule{in.Infra.Namespace, rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{in.readerSecret()}, Verbs: read,
		}})
	}
	return rules
}

// readerSecret is the Secret that control keeps for DNS and proxy.
func (in *Input) readerSecret() string {
	_, name, _ := strings.Cut(model.ReaderSecret(model.Ref{Kind: "Infra", Namespace: in.Infra.Namespace, Name: in.Infra.Name}), "/")
	return name
}

// controlRights are what control needs for the applications of this Infra, beside its own
// ClusterRole.
func controlRights(in *Input) ([]runtime.Object, error) {
	apps := in.Infra.Spec.AppsIngress
	if !apps.IsEnabled() || cmp.Or(apps.Source, v1alpha1.AppsIngressSourceHostedService) != v1alpha1.AppsIngressSourceHostedService {
		return nil, nil
	}
	// Followed by the model, and asked for when it is used.
	admin := rule{in.Infra.Namespace, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}}}
	switch c := in.cluster(); {
	case apps.KubeconfigSecretRef != nil:
		admin.ResourceNames = []string{apps.KubeconfigSecretRef.Name}
	case c != nil && c.Kubeconfig != "":
		namespace, name, _ := strings.Cut(c.Kubeconfig, "/")
		admin.namespace, admin.ResourceNames = namespace, []string{name}
	case in.HostedCluster.Name != "":
		// As HyperShift names it; the HostedCluster will say so.
		admin.namespace, admin.ResourceNames = in.HostedCluster.Namespace, []string{in.HostedCluster.Name + "-admin-kubeconfig"}
	default:
		return nil, nil // setup says so
	}
	// It is made by applying it, and who applies is asked for the right to create it by its name.
	reader := rule{in.Infra.Namespace, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{in.readerSecret()}, Verbs: []string{"get", "create", "patch", "delete"},
	}}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: SystemNamespace, Name: ControlName}
	return in.grant(controlPart, subject, []rule{admin, reader}), nil
}
