package doctor

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/manifests"
)

// renderReads returns what must be read to render the Infra.
func renderReads() []Read {
	return slices.Concat(in(AtInfra, infras, proxyServers), in(AtHosted, hostedClusters), in(AtNetwork, attachments), in(AtControlPlane, routes, services))
}

// rendered returns the objects that setup would render for the Infra now. They are rendered once.
func (s *Site) rendered() ([]*unstructured.Unstructured, error) {
	if s.rendering == nil {
		s.rendering = &rendering{}
		s.rendering.objects, s.rendering.err = s.render()
	}
	return s.rendering.objects, s.rendering.err
}

// rendering is the result of rendering the Infra.
type rendering struct {
	objects []*unstructured.Unstructured
	err     error
}

func (s *Site) render() ([]*unstructured.Unstructured, error) {
	list, err := render.Objects(s.input())
	if err != nil {
		return nil, fmt.Errorf("rendering the objects: %w", err)
	}
	return list, nil
}

// input returns the input from which setup renders.
func (s *Site) input() *render.Input {
	input := &render.Input{Infra: s.Infra.DeepCopy(), Snapshot: s.Snapshot, OpenShift: s.served(dnsOperators)}
	for _, u := range s.facts.list(infras, s.Infra.Namespace) {
		if u.GetName() == s.Infra.Name {
			input.Written = u.DeepCopy()
		}
	}
	for _, u := range s.facts.list(proxyServers, s.Infra.Namespace) {
		p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if ok && p.Spec.InfraRef != nil && p.Spec.InfraRef.Name == s.Infra.Name && input.ProxyServer == nil {
			input.ProxyServer, input.ProxySpec = u.DeepCopy(), p.Spec
		}
	}
	if hosted := s.hosted(); hosted != nil {
		input.HostedCluster = types.NamespacedName{Namespace: hosted.Namespace, Name: hosted.Name}
		input.ControlPlane = s.Cluster.ControlPlaneNamespace
		for _, u := range s.facts.list(hostedClusters, hosted.Namespace) {
			if u.GetName() == hosted.Name {
				input.MachineNamespace, _, _ = unstructured.NestedString(u.Object, "spec", "platform", "kubevirt", "credentials", "infraNamespace")
			}
		}
	}
	for _, u := range s.facts.list(attachments, s.network().Namespace) {
		if u.GetName() == s.network().Name {
			input.Attachment, _, _ = unstructured.NestedString(u.Object, "spec", "config")
		}
	}
	return input
}

// controlRoles returns control's roles and bindings that do not depend on Infras.
func controlRoles() ([]*unstructured.Unstructured, error) {
	file, err := manifests.Files.Open(path.Join("base", "control", "rbac.yaml"))
	if err != nil {
		return nil, fmt.Errorf("reading the embedded manifest of control's rights: %w", err)
	}
	read, err := documents.Read([]string{"-"}, file)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("reading the embedded manifest of control's rights: %w", err)
	}
	var list []*unstructured.Unstructured
	for _, o := range read {
		list = append(list, o.Unstructured)
	}
	return list, nil
}

// Right is one action that a ServiceAccount may perform.
type Right struct {
	// User is the user name of the ServiceAccount, "system:serviceaccount:NAMESPACE:NAME".
	User string `json:"user"`
	// Namespace is empty for a right in all namespaces. Name is empty for a right to objects of any name.
	Namespace   string `json:"namespace,omitempty"`
	Verb        string `json:"verb"`
	Group       string `json:"group,omitempty"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource,omitempty"`
	Name        string `json:"name,omitempty"`
}

// String returns the action, such as "get secrets admin in namespace clusters".
func (r Right) String() string {
	resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
	if r.Group != "" {
		resource += "." + r.Group
	}
	if r.Name != "" {
		resource += " " + r.Name
	}
	if r.Namespace == "" {
		return r.Verb + " " + resource + " in all namespaces"
	}
	return r.Verb + " " + resource + " in namespace " + r.Namespace
}

// grants is the result of rendering the rights that setup grants.
type grants struct {
	rights []Right
	err    error
}

// rights returns the rights that setup grants to the ServiceAccounts of the Infra's daemons and of control.
// They are computed once.
func (s *Site) rights() ([]Right, error) {
	if s.grants == nil {
		s.grants = &grants{}
		s.grants.rights, s.grants.err = s.boundRights()
	}
	return s.grants.rights, s.grants.err
}

func (s *Site) boundRights() ([]Right, error) {
	list, err := s.rendered()
	control, noControl := controlRoles()
	if err := errors.Join(err, noControl); err != nil {
		return nil, err
	}
	return rightsOf(slices.Concat(control, list))
}

// rightsOf returns the rights that the bindings in a list grant, sorted, each once.
func rightsOf(list []*unstructured.Unstructured) ([]Right, error) {
	type role struct{ kind, namespace, name string }
	rules := map[role][]rbacv1.PolicyRule{}
	for _, u := range list {
		if u.GetKind() == "Role" || u.GetKind() == "ClusterRole" {
			o, err := decode[rbacv1.Role](u) // ClusterRole has the same rules
			if err != nil {
				return nil, err
			}
			rules[role{u.GetKind(), u.GetNamespace(), u.GetName()}] = o.Rules
		}
	}
	var rights []Right
	for _, u := range list {
		if u.GetKind() != "RoleBinding" && u.GetKind() != "ClusterRoleBinding" {
			continue
		}
		b, err := decode[rbacv1.RoleBinding](u)
		if err != nil {
			return nil, err
		}
		of := role{b.RoleRef.Kind, u.GetNamespace(), b.RoleRef.Name}
		if of.kind == "ClusterRole" {
			of.namespace = ""
		}
		for _, subject := range b.Subjects {
			user := "system:serviceaccount:" + subject.Namespace + ":" + subject.Name
			for _, rule := range rules[of] {
				rights = append(rights, ruleRights(user, u.GetNamespace(), rule)...)
			}
		}
	}
	slices.SortFunc(rights, func(a, b Right) int { return strings.Compare(a.User+" "+a.String(), b.User+" "+b.String()) })
	return slices.Compact(rights), nil
}

// ruleRights returns the rights of one rule.
func ruleRights(user, namespace string, rule rbacv1.PolicyRule) []Right {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var rights []Right
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, sub, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					rights = append(rights, Right{User: user, Namespace: namespace, Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: name})
				}
			}
		}
	}
	return rights
}
