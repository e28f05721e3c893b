package doctor

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Site is one Infra with what the facts have about it.
type Site struct {
	Infra *v1alpha1.Infra
	// Snapshot is what names and routes come to, Model the Infra in it, Cluster the hosted
	// cluster that it serves. Model is nil while the Infra's CRD is not served, Cluster is nil
	// for none.
	Snapshot *model.Snapshot
	Model    *model.Infra
	Cluster  *model.Cluster

	facts      *Facts
	namespaces map[Where][]string
	made       *made  // by rendered
	given      *given // by rights

	// of the check that runs
	reads  []Read
	broken []string
	silent []string // which pods did not answer
}

// key names the Infra.
func (s *Site) key() string { return s.Infra.Namespace + "/" + s.Infra.Name }

// ref is the Infra.
func (s *Site) ref() model.Ref {
	return model.Ref{Kind: "Infra", Namespace: s.Infra.Namespace, Name: s.Infra.Name}
}

// hosted is the HostedCluster that the Infra serves; nil for none.
func (s *Site) hosted() *model.Ref {
	if s.Cluster == nil || s.Cluster.Kind != "HostedCluster" {
		return nil
	}
	return &s.Cluster.Ref
}

// hostedObject is the HostedCluster, for who has declared to read it; nil for none.
func (s *Site) hostedObject() *unstructured.Unstructured {
	for _, u := range s.list(hostedClusters, AtHosted) {
		if of := s.hosted(); of != nil && u.GetName() == of.Name {
			return u
		}
	}
	return nil
}

// proxyModels are what the Infra's ProxyServers come to.
func (s *Site) proxyModels() []*model.ProxyServer {
	var list []*model.ProxyServer
	for _, p := range s.Snapshot.ProxyServers {
		if p.Infra != nil && *p.Infra == s.ref() {
			list = append(list, p)
		}
	}
	return list
}

// NewSite is the Infra "namespace/name" by the facts; nil where they do not have it.
func NewSite(facts *Facts, infra string) *Site {
	s := &Site{facts: facts, Snapshot: facts.model()}
	for _, u := range facts.list(infras, "") {
		if u.GetNamespace()+"/"+u.GetName() == infra {
			s.Infra = &v1alpha1.Infra{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s.Infra) != nil {
				return nil
			}
			s.Infra.Default()
		}
	}
	if s.Infra == nil {
		return nil
	}
	if s.Model = s.Snapshot.Infra(infra); s.Model != nil {
		s.Cluster = s.Model.Cluster
	}
	s.namespaces = placesOf(s.Infra, s.Cluster, s.hosted())
	s.namespaces[AtBackends] = s.backends()
	return s
}

// backends are the namespaces of what the Infra's ProxyServers lead to beside the control plane, as
// far as these are known.
func (s *Site) backends() []string {
	var list []string
	for _, u := range s.facts.list(proxyServers, s.Infra.Namespace) {
		p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if !ok || p.Spec.InfraRef == nil || p.Spec.InfraRef.Name != s.Infra.Name {
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

// placesOf are the namespaces of each place.
func placesOf(infra *v1alpha1.Infra, cluster *model.Cluster, hosted *model.Ref) map[Where][]string {
	nad := infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace)
	at := map[Where][]string{
		Everywhere: {""}, AtInfra: {infra.Namespace}, AtNetwork: {nad.Namespace}, AtSystem: {render.SystemNamespace}, AtClusterDNS: {coreConfig.Namespace, operatorConfig.Namespace},
	}
	at[AtHosted] = []string{hostedNamespace(infra)} // where it would be, anywhere with ""
	if hosted != nil {
		at[AtHosted] = []string{hosted.Namespace}
	}
	if cluster != nil && cluster.ControlPlaneNamespace != "" {
		at[AtControlPlane] = []string{cluster.ControlPlaneNamespace}
	}
	return at
}

// hostedNamespace is where the HostedCluster is that an Infra names; empty where it names none.
func hostedNamespace(infra *v1alpha1.Infra) string {
	ref := infra.Spec.NamedHostedCluster()
	if !ref.IsSet() {
		return ""
	}
	return ref.NamespacedName().Namespace
}

// snapshotOf is the model of all facts.
func snapshotOf(facts *Facts) *model.Snapshot {
	all := &model.Objects{}
	for kind, decode := range map[Kind]func(*unstructured.Unstructured) objects.Object{
		infras:         objects.Decode[v1alpha1.Infra],
		proxyServers:   objects.Decode[v1alpha1.ProxyServer],
		hostedClusters: objects.Decode[objects.HostedCluster],
		routes:         objects.Decode[objects.Route],
		services:       objects.Decode[objects.LabelledService],
		endpointSlices: objects.Decode[objects.EndpointSlice],
	} {
		for _, u := range facts.list(kind, "") {
			all.Add(decode(u))
		}
	}
	return model.Build(all, model.Options{Proxies: true})
}

// declared reports whether the check has said that it reads this; else it is broken.
func (s *Site) declared(r Read) bool {
	if slices.Contains(s.reads, r) {
		return true
	}
	s.broken = append(s.broken, fmt.Sprintf("the check reads %s%s in %s, and does not say so", r.Kind.Kind, r.Page.path, r.Where))
	return false
}

// list are the objects of a kind in a place, which the check has to have declared.
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

// all is list, decoded.
func all[T any](s *Site, kind Kind, where Where) []*T {
	var list []*T
	for _, u := range s.list(kind, where) {
		one, err := decodeOnce[T](s.facts, u)
		if err != nil {
			s.broken = append(s.broken, err.Error())
			continue
		}
		list = append(list, one)
	}
	return list
}

// decode makes an object's type of it.
func decode[T any](u *unstructured.Unstructured) (*T, error) {
	one := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, one); err != nil {
		return nil, fmt.Errorf("decoding %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return one, nil
}

// served reports whether the API server knows a kind.
func (s *Site) served(kind Kind) bool { return !s.facts.unserved[kind] }

// unread says what of the declared reads is not known, and why; empty where all is.
func (s *Site) unread(reads []Read) string {
	s.silent = nil
	for _, r := range reads {
		if r.Kind == podPages {
			if why := s.unasked(r); why != "" {
				return why
			}
			continue
		}
		if r.Kind == accessReviews {
			if why := s.unreviewed(); why != "" {
				return why
			}
			continue
		}
		for _, namespace := range s.namespaces[r.Where] {
			if why := s.facts.why(r.Kind, namespace); why != "" {
				return why
			}
		}
	}
	return ""
}
