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

	// of the check that runs
	reads  []Read
	broken []string
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
	return s
}

// placesOf are the namespaces of each place.
func placesOf(infra *v1alpha1.Infra, cluster *model.Cluster, hosted *model.Ref) map[Where][]string {
	nad := infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace)
	at := map[Where][]string{
		Everywhere: {""}, AtInfra: {infra.Namespace}, AtNetwork: {nad.Namespace}, AtSystem: {render.SystemNamespace}, AtClusterDNS: {"kube-system"},
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

// list are the objects of a kind in a place, which the check has to have declared.
func (s *Site) list(kind Kind, where Where) []*unstructured.Unstructured {
	if !slices.Contains(s.reads, Read{kind, where}) {
		s.broken = append(s.broken, fmt.Sprintf("the check reads %s in %s, and does not say so", kind.Kind, where))
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
		one := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, one); err != nil {
			s.broken = append(s.broken, fmt.Sprintf("decoding %s %s/%s: %v", kind.Kind, u.GetNamespace(), u.GetName(), err))
			continue
		}
		list = append(list, one)
	}
	return list
}

// served reports whether the API server knows a kind.
func (s *Site) served(kind Kind) bool { return !s.facts.unserved[kind] }

// unread says what of the declared reads is not known, and why; empty where all is.
func (s *Site) unread(reads []Read) string {
	for _, r := range reads {
		for _, namespace := range s.namespaces[r.Where] {
			if why := s.facts.why(r.Kind, namespace); why != "" {
				return why
			}
		}
	}
	return ""
}
