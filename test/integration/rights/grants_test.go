package rights_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/densityops/oooi/test/lab"
)

// right returns a right, as lab.Right.
func right(verb, group, resource, namespace, name string) lab.Right {
	return lab.Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: name}
}

// account is a ServiceAccount whose permissions are tested.
type account struct {
	kube            kubernetes.Interface
	namespace, name string
}

func (a account) user() string { return "system:serviceaccount:" + a.namespace + ":" + a.name }

// role is a Role or, without a namespace, a ClusterRole.
type role struct {
	namespace, name string
	rules           []rbacv1.PolicyRule
}

// roles returns the roles that are bound to the account itself, not to one of its groups.
func (a account) roles(t *testing.T) []role {
	t.Helper()
	bound := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == a.namespace && s.Name == a.name || s.Name == a.user()
		})
	}
	var all []role
	rbac := a.kube.RbacV1()
	bindings, err := rbac.RoleBindings("").List(t.Context(), metav1.ListOptions{})
	lab.Must(t, err)
	for _, b := range bindings.Items {
		if !bound(b.Subjects) {
			continue
		}
		if b.RoleRef.Kind != "Role" {
			t.Fatalf("RoleBinding %s/%s binds %s to a %s, which this test does not support", b.Namespace, b.Name, a.user(), b.RoleRef.Kind)
		}
		r, err := rbac.Roles(b.Namespace).Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{})
		lab.Must(t, err)
		all = append(all, role{r.Namespace, r.Name, r.Rules})
	}
	clusterBindings, err := rbac.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	lab.Must(t, err)
	for _, b := range clusterBindings.Items {
		if !bound(b.Subjects) {
			continue
		}
		r, err := rbac.ClusterRoles().Get(t.Context(), b.RoleRef.Name, metav1.GetOptions{})
		lab.Must(t, err)
		all = append(all, role{"", r.Name, r.Rules})
	}
	if len(all) == 0 {
		t.Fatalf("nothing is granted to %s", a.user())
	}
	return all
}

// permissions returns the permissions in the rules of a role.
func (r role) rights(t *testing.T) []lab.Right {
	t.Helper()
	var all []lab.Right
	for _, rule := range r.rules {
		if len(rule.NonResourceURLs) > 0 {
			t.Errorf("role %s/%s grants %v, which this test does not support", r.namespace, r.name, rule.NonResourceURLs)
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						if group == rbacv1.APIGroupAll || resource == rbacv1.ResourceAll || verb == rbacv1.VerbAll {
							t.Errorf("role %s/%s has a wildcard: %+v", r.namespace, r.name, rule)
						}
						all = append(all, right(verb, group, resource, r.namespace, name))
					}
				}
			}
		}
	}
	return all
}

// granted returns all permissions of the account without duplicates.
func (a account) granted(t *testing.T) []lab.Right {
	t.Helper()
	var all []lab.Right
	for _, r := range a.roles(t) {
		all = append(all, r.rights(t)...)
	}
	slices.SortFunc(all, func(a, b lab.Right) int {
		return strings.Compare(a.Group+" "+a.Resource+" "+a.Namespace+" "+a.Verb+" "+a.Name, b.Group+" "+b.Resource+" "+b.Namespace+" "+b.Verb+" "+b.Name)
	})
	return slices.Compact(all)
}

// revoke removes a right from the account's roles, and returns a function that restores it. Both wait until
// the authorizer has observed the change.
func (a account) revoke(t *testing.T, revoked lab.Right) (restore func()) {
	t.Helper()
	var before []role
	for _, r := range a.roles(t) {
		rights := r.rights(t)
		if !slices.Contains(rights, revoked) {
			continue
		}
		before = append(before, r)
		reduced := role{namespace: r.namespace, name: r.name}
		for _, kept := range rights {
			if kept == revoked {
				continue
			}
			rule := rbacv1.PolicyRule{Verbs: []string{kept.Verb}, APIGroups: []string{kept.Group}, Resources: []string{kept.Resource}}
			if kept.Name != "" {
				rule.ResourceNames = []string{kept.Name}
			}
			reduced.rules = append(reduced.rules, rule)
		}
		a.write(t, reduced)
	}
	a.awaitAuthorization(t, revoked, false)
	return func() {
		t.Helper()
		for _, r := range before {
			a.write(t, r)
		}
		a.awaitAuthorization(t, revoked, true)
	}
}

// write replaces the rules of a role.
func (a account) write(t *testing.T, r role) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"rules": r.rules})
	lab.Must(t, err)
	if r.namespace == "" {
		_, err = a.kube.RbacV1().ClusterRoles().Patch(t.Context(), r.name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = a.kube.RbacV1().Roles(r.namespace).Patch(t.Context(), r.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	lab.Must(t, err)
}

// awaitAuthorization waits until the API server's authorizer allows or denies a right.
func (a account) awaitAuthorization(t *testing.T, r lab.Right, want bool) {
	t.Helper()
	resource, sub, _ := strings.Cut(r.Resource, "/")
	lab.Await(t, "the authorizer to observe the change", func() string {
		review, err := a.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: a.user(), ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Namespace, Name: r.Name,
			},
		}}, metav1.CreateOptions{})
		lab.Must(t, err)
		if review.Status.Allowed != want {
			return r.String() + " has not changed"
		}
		return ""
	})
}
