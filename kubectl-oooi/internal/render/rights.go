package render

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// readVerbs are the verbs of a daemon that watches objects. It never gets a single object.
var readVerbs = []string{"list", "watch"}

// A rule is a permission in a namespace, or in all namespaces if namespace is empty.
type rule struct {
	namespace string
	rbacv1.PolicyRule
}

// allow returns a rule for the objects of a resource with one of the names, or for all objects without names.
func allow(namespace, group, resource string, verbs []string, names ...string) rule {
	return rule{namespace, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}}
}

// permissions returns the ServiceAccount of a component, with a Role and a RoleBinding for each namespace of the rules.
func (in *Input) rights(component string, rules ...rule) []runtime.Object {
	meta := in.meta(component, in.name(component))
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}
	account := &corev1.ServiceAccount{ObjectMeta: meta, AutomountServiceAccountToken: new(false)}
	return append([]runtime.Object{account}, in.grant(component, subject, rules)...)
}

// grant returns a Role and a RoleBinding for each namespace of the rules, or a ClusterRole and its binding for all
// namespaces.
func (in *Input) grant(component string, subject rbacv1.Subject, rules []rule) []runtime.Object {
	// The name contains the Infra's name, because several Infras may have Roles in one namespace.
	name := roleName(in.Infra, component)
	byNamespace := map[string][]rbacv1.PolicyRule{}
	for _, r := range rules {
		byNamespace[r.namespace] = append(byNamespace[r.namespace], r.PolicyRule)
	}
	var list []runtime.Object
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		meta, subjects := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: in.labels(component)}, []rbacv1.Subject{subject}
		ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}
		if namespace == "" {
			ref.Kind = "ClusterRole"
			list = append(list,
				&rbacv1.ClusterRole{ObjectMeta: meta, Rules: byNamespace[namespace]}, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref})
			continue
		}
		list = append(list, &rbacv1.Role{ObjectMeta: meta, Rules: byNamespace[namespace]}, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref})
	}
	return list
}

// roleName returns the name of the Roles and ClusterRoles of an Infra's component.
func roleName(infra *v1alpha1.Infra, component string) string {
	return strings.Join([]string{partOf, infra.Namespace, infra.Name, component}, "-")
}

// controlPart is control's part in names of Roles.
const controlPart = "control"

// ControlRole returns the name of the Roles and RoleBindings that control needs for the apps ingress of an Infra.
func ControlRole(infra *v1alpha1.Infra) string { return roleName(infra, controlPart) }

// readRules returns rules for reading the objects that the model needs for this Infra.
func (in *Input) readRules() []rule {
	hosted, plane := in.HostedCluster, in.ControlPlane
	rules := []rule{
		allow(hosted.Namespace, "hypershift.openshift.io", "hostedclusters", readVerbs, hosted.Name),
		allow(plane, "route.openshift.io", "routes", readVerbs), allow(plane, "", "services", readVerbs),
		allow(in.Infra.Namespace, v1alpha1.GroupName, "infras", readVerbs, in.Infra.Name), allow(in.Infra.Namespace, "", "services", readVerbs),
	}
	if hosted.Name == "" || plane == "" { // any HostedCluster may become the Infra's
		rules = []rule{
			allow("", "hypershift.openshift.io", "hostedclusters", readVerbs), allow("", "route.openshift.io", "routes", readVerbs),
			allow("", "", "services", readVerbs), allow("", v1alpha1.GroupName, "infras", readVerbs),
		}
	}
	if in.Infra.Spec.AppsIngress.IsEnabled() {
		rules = append(rules, allow(in.Infra.Namespace, "", "secrets", readVerbs, in.readerSecret()))
	}
	return rules
}

// readerSecret returns the name of the Secret with the kubeconfig that control creates for DNS and proxy.
func (in *Input) readerSecret() string {
	_, name, _ := strings.Cut(model.ReaderSecret(model.Ref{Kind: "Infra", Namespace: in.Infra.Namespace, Name: in.Infra.Name}), "/")
	return name
}

// controlRights returns the Roles that control needs for apps ingress of this Infra, in addition to its ClusterRole.
func (in *Input) controlRights() []runtime.Object {
	apps := in.Infra.Spec.AppsIngress
	if !apps.IsEnabled() || cmp.Or(apps.Source, v1alpha1.AppsIngressSourceHostedService) != v1alpha1.AppsIngressSourceHostedService {
		return nil
	}
	// Control watches the admin kubeconfig for the model, and gets it to connect.
	admin := allow(in.Infra.Namespace, "", "secrets", []string{"get", "list", "watch"})
	switch c := in.cluster(); {
	case apps.KubeconfigSecretRef != nil:
		admin.ResourceNames = []string{apps.KubeconfigSecretRef.Name}
	case c != nil && c.Kubeconfig != "":
		namespace, name, _ := strings.Cut(c.Kubeconfig, "/")
		admin.namespace, admin.ResourceNames = namespace, []string{name}
	case in.HostedCluster.Name != "":
		// HyperShift's name for the Secret, until the HostedCluster's status contains it.
		admin.namespace, admin.ResourceNames = in.HostedCluster.Namespace, []string{in.HostedCluster.Name + "-admin-kubeconfig"}
	default:
		return nil // setup prints a warning
	}
	// Control applies the Secret. The API server requires create for the name of an applied object that does not exist.
	reader := allow(in.Infra.Namespace, "", "secrets", []string{"get", "create", "patch", "delete"}, in.readerSecret())
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: SystemNamespace, Name: ControlName}
	return in.grant(controlPart, subject, []rule{admin, reader})
}
