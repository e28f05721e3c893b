package doctor

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// Site is one Infra, or one ProxyServer without an Infra, with the facts about it. It is not safe for concurrent use.
type Site struct {
	// Infra has defaults set. For a standalone ProxyServer, setup derives it.
	Infra *v1alpha1.Infra
	// Standalone is the ProxyServer without an Infra, nil for an Infra. Model and Cluster are then nil.
	Standalone *v1alpha1.ProxyServer
	// Snapshot is built from all objects, Model is the Infra in it, and Cluster the hosted cluster that the
	// Infra serves. Model is nil if the model cannot decode the Infra. Cluster is nil if the Infra serves none.
	Snapshot *model.Snapshot
	Model    *model.Infra
	Cluster  *model.Cluster

	facts      *Facts
	networks   cni.Networks
	namespaces map[Where][]string
	invalid    error      // why setup would refuse a standalone ProxyServer; nil if it would not
	rendering  *rendering // set by rendered
	grants     *grants    // set by rights

	// State of the running check.
	reads       []Read
	checkErrors []string
	unanswered  []string          // why pods did not answer, or a probe failed
	explained   map[string]string // components that earlier checks found to fail, with the check
}

// key returns "namespace/name" of the Infra or the standalone ProxyServer.
func (s *Site) key() string { return s.Infra.Namespace + "/" + s.Infra.Name }

// ref returns a reference to the Infra or the standalone ProxyServer.
func (s *Site) ref() model.Ref {
	if s.Standalone != nil {
		return proxyRef(s.Standalone)
	}
	return model.Ref{Kind: "Infra", Namespace: s.Infra.Namespace, Name: s.Infra.Name}
}

// ownLabels returns the labels that objects of a component have, other than those of all our objects.
func (s *Site) ownLabels(component string) labels.Set {
	if s.Standalone != nil {
		return labels.Set{v1alpha1.LabelProxyServer: s.Infra.Name, v1alpha1.LabelComponent: component}
	}
	return labels.Set{v1alpha1.LabelInfra: s.Infra.Name, v1alpha1.LabelComponent: component}
}

// owns reports whether an object with these labels belongs to the Infra or the standalone ProxyServer.
func (s *Site) owns(has map[string]string) bool {
	_, ofInfra := has[v1alpha1.LabelInfra]
	return ofInfra == (s.Standalone == nil) && s.ownLabels(has[v1alpha1.LabelComponent]).AsSelector().Matches(labels.Set(has))
}

// hasProxyServer reports whether the site is about a ProxyServer: it refers to the Infra, or is the standalone one.
func (s *Site) hasProxyServer(p *v1alpha1.ProxyServer) bool {
	if s.Standalone != nil {
		return p.Spec.InfraRef == nil && p.Name == s.Infra.Name
	}
	return p.Spec.InfraRef != nil && p.Spec.InfraRef.Name == s.Infra.Name
}

// refTo returns a reference to an object.
func refTo(u *unstructured.Unstructured) model.Ref {
	return model.Ref{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}

// hosted returns the HostedCluster that the Infra serves, nil if there is none.
func (s *Site) hosted() *model.Ref {
	if s.Cluster == nil || s.Cluster.Kind != "HostedCluster" {
		return nil
	}
	return &s.Cluster.Ref
}

// hostedObject returns the HostedCluster as an object, nil if there is none. The check must have declared to
// read it.
func (s *Site) hostedObject() *unstructured.Unstructured {
	for _, u := range s.list(hostedClusters, AtHosted) {
		if hosted := s.hosted(); hosted != nil && u.GetName() == hosted.Name {
			return u
		}
	}
	return nil
}

// proxyModels returns the Infra's ProxyServers, or the standalone one, in the model.
func (s *Site) proxyModels() []*model.ProxyServer {
	var list []*model.ProxyServer
	for _, p := range s.Snapshot.ProxyServers {
		if p.Infra != nil && *p.Infra == s.ref() || p.Infra == nil && p.Ref == s.ref() {
			list = append(list, p)
		}
	}
	return list
}

// NewSite returns the Site of the Infra or standalone ProxyServer "namespace/name"; nil if the facts do not contain it,
// or if it cannot be decoded.
func NewSite(facts *Facts, infra string) *Site {
	s := &Site{facts: facts, networks: facts.networks(), Snapshot: facts.model()}
	for _, u := range facts.list(infras, "") {
		if u.GetNamespace()+"/"+u.GetName() == infra {
			s.Infra = &v1alpha1.Infra{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s.Infra) != nil {
				return nil
			}
			s.Infra.Default()
		}
	}
	if s.Infra == nil && !s.useStandalone(infra) {
		return nil
	}
	if s.Model = s.Snapshot.Infra(infra); s.Model != nil {
		s.Cluster = s.Model.Cluster
	}
	s.namespaces = namespacesOf(s.Infra, s.Cluster, s.hosted())
	s.namespaces[AtBackends] = s.backendNamespaces()
	s.namespaces[AtWebhooks] = s.webhookNamespaces()
	return s
}

// useStandalone sets the ProxyServer without an Infra "namespace/name", and reports whether the facts contain it.
func (s *Site) useStandalone(key string) bool {
	var others []*v1alpha1.ProxyServer
	for _, u := range s.facts.list(proxyServers, "") {
		switch p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer); {
		case !ok || p.Spec.InfraRef != nil:
		case p.Namespace+"/"+p.Name == key:
			p.Generation = u.GetGeneration() // Decode drops it
			s.Standalone = p
		default:
			others = append(others, p)
		}
	}
	if s.Standalone == nil {
		return false
	}
	var known []*v1alpha1.Infra
	for _, u := range s.facts.list(infras, "") {
		if i, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra); ok {
			known = append(known, i)
		}
	}
	s.Standalone.Default()
	s.Infra, _, s.invalid = setup.StandaloneInfra(s.Standalone, known, others, s.networks)
	s.Infra.Generation, s.Infra.Status.ObservedGeneration = s.Standalone.Generation, s.Standalone.Status.ObservedGeneration
	return true
}

// backendNamespaces returns the namespaces, other than the control plane's, of the backends of the Infra's
// ProxyServers.
func (s *Site) backendNamespaces() []string {
	var list []string
	for _, u := range s.facts.list(proxyServers, s.Infra.Namespace) {
		p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if !ok || !s.hasProxyServer(p) {
			continue
		}
		for i := range p.Spec.Backends {
			if namespace := p.Spec.Backends[i].TargetNamespace; namespace != "" && !slices.Contains(s.namespaces[AtControlPlane], namespace) {
				list = append(list, namespace)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// namespacesOf returns the namespaces that each Where selects, except AtBackends and AtWebhooks.
func namespacesOf(infra *v1alpha1.Infra, cluster *model.Cluster, hosted *model.Ref) map[Where][]string {
	nad := infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace)
	at := map[Where][]string{
		Everywhere: {""}, AtInfra: {infra.Namespace}, AtNetwork: {nad.Namespace}, AtSystem: {render.SystemNamespace}, AtDefault: {metav1.NamespaceDefault},
		AtClusterDNS: {coreConfig.Namespace, operatorConfig.Namespace}, AtMultus: {read.MultusConfigs[0].Namespace},
	}
	at[AtHosted] = hostedNamespaces(infra)
	if hosted != nil {
		at[AtHosted] = []string{hosted.Namespace}
	}
	if cluster != nil && cluster.ControlPlaneNamespace != "" {
		at[AtControlPlane] = []string{cluster.ControlPlaneNamespace}
	}
	return at
}

// hostedNamespaces returns the namespaces of the HostedClusters that an Infra may refer to, or "" for all if it refers to
// none.
func hostedNamespaces(infra *v1alpha1.Infra) []string {
	var namespaces []string
	for _, candidate := range infra.Spec.NamedHostedCluster().Candidates(infra.Namespace) {
		namespaces = append(namespaces, candidate.Namespace)
	}
	if namespaces == nil {
		return []string{""}
	}
	return namespaces
}

// snapshotOf builds the model from all objects of the facts; without apps addresses if apps is nil.
func snapshotOf(facts *Facts, apps *model.AppsOptions) *model.Snapshot {
	all := &model.Objects{}
	for kind, decode := range map[Kind]func(*unstructured.Unstructured) objects.Object{
		infras:         objects.Decode[v1alpha1.Infra],
		proxyServers:   objects.Decode[v1alpha1.ProxyServer],
		hostedClusters: objects.Decode[objects.HostedCluster],
		routes:         objects.Decode[objects.Route],
		services:       objects.Decode[objects.LabelledService],
		endpointSlices: objects.Decode[objects.EndpointSlice],
		attachments:    objects.DecodeNetworkAttachment,
	} {
		for _, u := range facts.list(kind, "") {
			all.Add(decode(u))
		}
	}
	return model.Build(all, model.Options{Apps: apps, Proxies: true, Names: model.NameRules{Management: facts.management()}})
}

// networks returns the networks of the NetworkAttachmentDefinitions.
func (f *Facts) networks() cni.Networks {
	all := cni.Networks{}
	for _, u := range f.list(attachments, "") {
		read.AddNetwork(all, u)
	}
	return all
}

// machineInterfaces returns the names of a VirtualMachineInstance's interfaces on the network of the Infra.
func (s *Site) machineInterfaces(u *unstructured.Unstructured) []string {
	return read.MachineInterfaces(u, s.networks, s.network().Key())
}

// declared reports whether the running check has declared a read. If not, it records an error of the check.
func (s *Site) declared(r Read) bool {
	if slices.ContainsFunc(s.reads, func(declared Read) bool {
		declared.Optional = false
		return declared == r
	}) {
		return true
	}
	s.checkErrors = append(s.checkErrors, fmt.Sprintf("the check reads %s%s in %s without declaring it", r.Kind.Kind, r.Page.path, r.Where))
	return false
}

// list returns the objects of a kind. The check must have declared to read them.
func (s *Site) list(kind Kind, where Where) []*unstructured.Unstructured {
	if !s.declared(Read{Kind: kind, Where: where}) {
		return nil
	}
	var list []*unstructured.Unstructured
	for _, namespace := range s.namespaces[where] {
		list = append(list, s.facts.list(kind, namespace)...)
	}
	return list
}

// all returns the objects of a kind like list, decoded.
func all[T any](s *Site, kind Kind, where Where) []*T {
	var list []*T
	for _, u := range s.list(kind, where) {
		one, err := decodeOnce[T](s.facts, u)
		if err != nil {
			s.checkErrors = append(s.checkErrors, err.Error())
			continue
		}
		list = append(list, one)
	}
	return list
}

// decode converts an object to a type.
func decode[T any](u *unstructured.Unstructured) (*T, error) {
	one := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, one); err != nil {
		return nil, fmt.Errorf("decoding %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return one, nil
}

// served reports whether the API server serves a kind.
func (s *Site) served(kind Kind) bool { return !s.facts.unserved[kind] }

// unreadReason returns why data that a check declares to read is missing, empty if nothing is. It resets the
// state of unanswered requests.
func (s *Site) unreadReason(reads []Read) string {
	s.unanswered = nil
	for _, r := range reads {
		if r.Optional {
			continue
		}
		if r.Kind == podPages {
			if why := s.unreadPage(r); why != "" {
				return why
			}
			continue
		}
		if r.Kind == accessReviews {
			if why := s.unreadReview(); why != "" {
				return why
			}
			continue
		}
		for _, namespace := range s.namespaces[r.Where] {
			if why := s.facts.unreadReason(r.Kind, namespace); why != "" {
				return why
			}
		}
	}
	return ""
}
