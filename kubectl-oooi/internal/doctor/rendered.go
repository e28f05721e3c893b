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
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/manifests"
)

// renderReads returns what must be read to render the Infra.
func renderReads() []Read {
	return slices.Concat(
		in(AtInfra, infras, proxyServers), in(AtHosted, hostedClusters), in(AtNetwork, attachments), in(AtControlPlane, routes, services),
		in(AtBackends, services), in(AtInfra, configMaps), in(AtControlPlane, namespaces), in(Everywhere, clusterDNS, clusterIngress, constraints),
	)
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
	input, err := s.input()
	var list []*unstructured.Unstructured
	if err == nil {
		list, err = render.Objects(input)
	}
	if err != nil {
		return nil, fmt.Errorf("rendering the objects: %w", err)
	}
	return list, nil
}

// input returns the input from which setup renders, computed by setup from the facts.
func (s *Site) input() (*render.Input, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	k := &setup.Known{Infra: s.Infra.DeepCopy(), Attachments: map[string]string{}}
	for _, u := range s.facts.list(infras, "") {
		if u.GetNamespace() == s.Infra.Namespace && u.GetName() == s.Infra.Name {
			k.Written = u.DeepCopy()
		} else {
			k.Objects.Add(objects.Decode[v1alpha1.Infra](u))
		}
	}
	var servers []*unstructured.Unstructured
	for _, u := range s.facts.list(proxyServers, s.Infra.Namespace) {
		servers = append(servers, u.DeepCopy()) // setup corrects the address in it
		if s.Standalone != nil && u.GetName() == s.Standalone.Name {
			k.ProxyServer, k.WrittenProxyServer = s.Standalone, documents.Manifest(u.DeepCopy())
		}
	}
	var err error
	if s.Standalone == nil {
		err = k.UseProxyServer(servers)
	}
	for _, u := range s.facts.list(hostedClusters, "") {
		k.Objects.Add(objects.Decode[objects.HostedCluster](u))
	}
	for _, namespace := range slices.Concat(s.namespaces[AtControlPlane], s.namespaces[AtBackends]) {
		for _, u := range s.facts.list(services, namespace) {
			k.Objects.Add(objects.Decode[objects.LabelledService](u))
		}
	}
	for _, namespace := range s.namespaces[AtControlPlane] {
		list := s.facts.list(routes, namespace)
		for _, u := range list {
			k.Objects.Add(objects.Decode[objects.Route](u))
		}
		// A folder may lack the Namespace.
		k.ControlPlane = len(s.facts.list(namespaces, namespace)) > 0 || len(list) > 0 || len(s.facts.list(services, namespace)) > 0
	}
	for _, u := range s.facts.list(attachments, s.network().Namespace) {
		if u.GetName() == s.network().Name {
			err = errors.Join(err, k.UseAttachment(u))
		}
	}
	var sets []string
	for _, u := range s.facts.list(statefulSets, s.Infra.Namespace) {
		if u.GetAnnotations()[v1alpha1.AnnotationInfra] == s.Infra.Namespace+"/"+s.Infra.Name {
			sets = append(sets, u.GetName())
		}
	}
	k.UseSets(sets, nil)
	remembered, invalid := s.remembered()
	if err := errors.Join(err, invalid); err != nil {
		return nil, err
	}
	k.OpenShift, k.Management = remembered.UsesOpenShift(s.served(constraints)), s.facts.management()
	return k.Input(remembered.Images()), nil
}

// remembered returns the flags and the version of the last setup.
func (s *Site) remembered() (*setup.Remembered, error) {
	text := ""
	for _, u := range s.facts.list(configMaps, s.Infra.Namespace) {
		if u.GetName() == inventory.Name(types.NamespacedName{Namespace: s.Infra.Namespace, Name: s.Infra.Name}).Name {
			text, _, _ = unstructured.NestedString(u.Object, "data", setup.RememberedKey)
		}
	}
	return setup.ParseRemembered(text) //nolint:wrapcheck // setup wraps it
}

// olderSetup returns the version of the last setup, if it is older than the plugin's; empty otherwise.
func (s *Site) olderSetup() string {
	if r, err := s.remembered(); err == nil && setup.Older(r.Version, s.facts.Plugin) {
		return r.Version
	}
	return ""
}

// management returns the domains of the management cluster, as setup reads them.
func (f *Facts) management() []string {
	k := &setup.Known{}
	for _, u := range slices.Concat(f.list(clusterDNS, ""), f.list(clusterIngress, "")) {
		if u.GetName() == "cluster" {
			_ = k.AddManagement(u) // a domain that is no text is none
		}
	}
	return k.Management
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
	bindings []roleBinding
	rights   []Right
	err      error
}

// roleBinding has the rights that a RoleBinding or ClusterRoleBinding grants to a user by a role.
type roleBinding struct {
	ref    model.Ref
	role   string // kind and name
	user   string
	rights []Right
}

// rights returns the rights that setup grants to the ServiceAccounts of the Infra's daemons and of control.
// They are computed once.
func (s *Site) rights() ([]Right, error) {
	if s.grants == nil {
		s.grants = &grants{}
		s.grants.bindings, s.grants.err = s.roleBindings()
		s.grants.rights = rightsOf(s.grants.bindings)
	}
	return s.grants.rights, s.grants.err
}

func (s *Site) roleBindings() ([]roleBinding, error) {
	list, err := s.rendered()
	control, noControl := controlRoles()
	if err := errors.Join(err, noControl); err != nil {
		return nil, err
	}
	return bindingsOf(slices.Concat(control, list))
}

// rightsOf returns the rights of bindings, sorted, each once.
func rightsOf(bindings []roleBinding) []Right {
	var rights []Right
	for i := range bindings {
		rights = append(rights, bindings[i].rights...)
	}
	slices.SortFunc(rights, func(a, b Right) int { return strings.Compare(a.User+" "+a.String(), b.User+" "+b.String()) })
	return slices.Compact(rights)
}

// bindingsOf returns the bindings in a list, one for each subject, with the rights of the roles in it.
func bindingsOf(list []*unstructured.Unstructured) ([]roleBinding, error) {
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
	var bindings []roleBinding
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
			one := roleBinding{ref: refTo(u), role: of.kind + " " + of.name, user: "system:serviceaccount:" + subject.Namespace + ":" + subject.Name}
			for _, rule := range rules[of] {
				one.rights = append(one.rights, ruleRights(one.user, u.GetNamespace(), rule)...)
			}
			bindings = append(bindings, one)
		}
	}
	return bindings, nil
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
