package site

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Site is an Infra, or a ProxyServer without an Infra, with its facts. It is safe for concurrent use.
type Site struct {
	// Infra has defaults set. For a standalone ProxyServer, setup derives it.
	Infra *v1alpha1.Infra
	// Standalone is the ProxyServer without an Infra; nil for an Infra. Model and Cluster are then nil.
	Standalone *v1alpha1.ProxyServer
	// Snapshot is built from all objects, Model is the Infra in it, and Cluster the hosted cluster that the Infra serves.
	// Model is nil if the model cannot decode the Infra. Cluster is nil if the Infra serves no cluster.
	Snapshot *model.Snapshot
	Model    *model.Infra
	Cluster  *model.Cluster
	Facts    *Facts
	// Networks are the networks of the NetworkAttachmentDefinitions.
	Networks cni.Networks
	// Invalid is why setup would reject a standalone ProxyServer; nil if it is valid. AssumedSubnet is set if its address lacks a prefix
	// length, and no other object on the network defines the subnet.
	Invalid       error
	AssumedSubnet bool

	namespaces map[Where][]string
}

// New returns the Site of the Infra or standalone ProxyServer "namespace/name"; nil if the facts do not contain it, or if it
// cannot be decoded. With apps, the model has apps addresses.
func New(facts *Facts, key string, apps *model.AppsOptions) *Site {
	s := &Site{Facts: facts}
	s.Networks, s.Snapshot = facts.Model()
	if apps != nil {
		s.Snapshot = snapshotOf(facts, model.Scope{}, apps)
	}
	for _, u := range facts.List(Infras, "") {
		if u.GetNamespace()+"/"+u.GetName() == key {
			s.Infra = &v1alpha1.Infra{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s.Infra) != nil {
				return nil
			}
			s.Infra.Default()
		}
	}
	if s.Infra == nil && !s.useStandalone(key) {
		return nil
	}
	if s.Model = s.Snapshot.Infra(key); s.Model != nil {
		s.Cluster = s.Model.Cluster
	}
	s.namespaces = s.selectNamespaces()
	return s
}

// useStandalone sets the ProxyServer without an Infra "namespace/name", and reports whether the facts contain it.
func (s *Site) useStandalone(key string) bool {
	var others []*v1alpha1.ProxyServer
	for _, u := range s.Facts.List(ProxyServers, "") {
		switch p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer); {
		case !ok || p.Spec.InfraRef != nil:
		case p.Namespace+"/"+p.Name == key:
			p.Generation = u.GetGeneration() // Decode drops the generation
			s.Standalone = p
		default:
			others = append(others, p)
		}
	}
	if s.Standalone == nil {
		return false
	}
	s.Standalone.Default()
	s.Infra, s.AssumedSubnet, s.Invalid = standaloneInfra(s.Standalone, s.Facts.Infras(), others, s.Networks)
	s.Infra.Generation, s.Infra.Status.ObservedGeneration = s.Standalone.Generation, s.Standalone.Status.ObservedGeneration
	return true
}

// selectNamespaces returns the namespaces that each Where selects.
func (s *Site) selectNamespaces() map[Where][]string {
	at := map[Where][]string{
		Everywhere: {""}, AtInfra: {s.Infra.Namespace}, AtNetwork: {s.Network().Namespace}, AtSystem: {render.SystemNamespace},
		AtClusterDNS: {CoreConfig.Namespace, OperatorConfig.Namespace}, AtMultus: {read.MultusConfigs[0].Namespace},
		AtHosted: hostedNamespaces(s.Infra),
	}
	if hosted := s.Hosted(); hosted != nil {
		at[AtHosted] = []string{hosted.Namespace}
	}
	add := func(where Where, namespace string) {
		if namespace != "" && !slices.Contains(at[AtControlPlane], namespace) && !slices.Contains(at[where], namespace) {
			at[where] = append(at[where], namespace)
		}
	}
	add(AtControlPlane, s.ControlPlaneNamespace())
	add(AtControlPlane, s.VMNamespace())
	for _, p := range s.Proxies() {
		for i := range p.Spec.Backends {
			add(AtBackends, p.Spec.Backends[i].TargetNamespace)
		}
	}
	add(AtBackends, cmp.Or(s.Infra.Spec.InfraComponents.Proxy, &v1alpha1.InfraProxy{}).ControlPlaneNamespace)
	namespace, _, _ := strings.Cut(s.ForeignService(), "/")
	add(AtBackends, namespace)
	return at
}

// ForeignService returns "namespace/name" of another program's Service by which pods reach the proxy; empty if there is none.
func (s *Site) ForeignService() string {
	if s.Model == nil || s.Model.Proxy == nil || s.Model.Proxy.Service == s.Key()+"-proxy" {
		return ""
	}
	return s.Model.Proxy.Service
}

// hostedNamespaces returns the namespaces of the HostedClusters that an Infra may refer to, or "" for all if it names none.
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

// ConfigMaps with the Corefile of the cluster's DNS, on plain Kubernetes and on OpenShift, whose DNS operator writes it.
var (
	CoreConfig     = types.NamespacedName{Namespace: "kube-system", Name: "coredns"}
	OperatorConfig = types.NamespacedName{Namespace: "openshift-dns", Name: "dns-default"}
)

// Key returns "namespace/name" of the Infra or the standalone ProxyServer.
func (s *Site) Key() string { return s.Infra.Namespace + "/" + s.Infra.Name }

// Ref returns a reference to the Infra or the standalone ProxyServer.
func (s *Site) Ref() model.Ref {
	kind := "Infra"
	if s.Standalone != nil {
		kind = "ProxyServer"
	}
	return model.Ref{Kind: kind, Namespace: s.Infra.Namespace, Name: s.Infra.Name}
}

// RefTo returns a reference to an object.
func RefTo(u *unstructured.Unstructured) model.Ref { return RefOf(u.GroupVersionKind(), u) }

// RefOf returns a reference to an object of a kind, which decoded objects do not have.
func RefOf(kind Kind, o metav1.Object) model.Ref {
	return model.Ref{Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Network returns a reference to the VMs' NetworkAttachmentDefinition.
func (s *Site) Network() model.Ref {
	nad := s.Infra.Spec.NetworkConfig.NetworkAttachment(s.Infra.Namespace)
	return model.Ref{Kind: NADs.Kind, Namespace: nad.Namespace, Name: nad.Name}
}

// NAD returns the VMs' NetworkAttachmentDefinition; nil if it does not exist.
func (s *Site) NAD() *unstructured.Unstructured {
	for _, u := range s.List(NADs, AtNetwork) {
		if u.GetName() == s.Network().Name {
			return u
		}
	}
	return nil
}

// NetworkConfig returns the CNI configuration of the VMs' network; empty if the network does not exist.
func (s *Site) NetworkConfig() string {
	nad := s.NAD()
	if nad == nil {
		return ""
	}
	config, _, _ := unstructured.NestedString(nad.Object, "spec", "config")
	return config
}

// Hosted returns a reference to the HostedCluster that the Infra serves; nil if there is none.
func (s *Site) Hosted() *model.Ref {
	if s.Cluster == nil || s.Cluster.Kind != HostedClusters.Kind {
		return nil
	}
	return &s.Cluster.Ref
}

// Named returns the HostedCluster that the Infra serves or, if none, names: the first existing one that the Infra may refer to, else the
// last. It is empty if the Infra neither serves nor names one.
func (s *Site) Named() (hosted types.NamespacedName) {
	if ref := s.Hosted(); ref != nil {
		return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
	return s.Facts.Named(s.Infra)
}

// Named returns the HostedCluster that an Infra names: the first existing one that the Infra may refer to, else the last. It is empty if
// the Infra names none.
func (f *Facts) Named(infra *v1alpha1.Infra) (hosted types.NamespacedName) {
	for _, hosted = range infra.Spec.NamedHostedCluster().Candidates(infra.Namespace) {
		if f.HostedCluster(hosted) != nil {
			break
		}
	}
	return hosted
}

// HostedCluster returns a HostedCluster; nil if it does not exist or cannot be decoded.
func (f *Facts) HostedCluster(key types.NamespacedName) *objects.HostedCluster {
	u := f.Get(HostedClusters, key.Namespace, key.Name)
	if u == nil {
		return nil
	}
	hc, _ := objects.Decode[objects.HostedCluster](u).(*objects.HostedCluster)
	return hc
}

// ControlPlaneNamespace returns the namespace of the hosted control plane, which need not exist: the hosted cluster's, else the one that
// the Infra names. It is empty if unknown.
func (s *Site) ControlPlaneNamespace() string {
	cluster := cmp.Or(s.Cluster, &model.Cluster{})
	proxy := cmp.Or(s.Infra.Spec.InfraComponents.Proxy, &v1alpha1.InfraProxy{})
	return cmp.Or(cluster.ControlPlaneNamespace, proxy.ControlPlaneNamespace, controlPlaneOf(s.Facts.Named(s.Infra)))
}

// VMNamespace returns the namespace of the hosted cluster's VMs; empty if it is unknown.
func (s *Site) VMNamespace() string {
	return cmp.Or(s.SeparateVMNamespace(), controlPlaneOf(s.Named()))
}

// SeparateVMNamespace returns the namespace of the hosted cluster's VMs if it differs from the control plane's; empty otherwise.
func (s *Site) SeparateVMNamespace() string {
	return cmp.Or(s.Facts.HostedCluster(s.Named()), &objects.HostedCluster{}).Spec.Platform.VMNamespace()
}

// controlPlaneOf returns the namespace of a HostedCluster's control plane; empty without a HostedCluster.
func controlPlaneOf(hosted types.NamespacedName) string {
	if hosted.Name == "" {
		return ""
	}
	return model.ControlPlaneNamespace(hosted.Namespace, hosted.Name)
}

// HostedCluster returns the HostedCluster that the Infra serves; nil if there is none.
func (s *Site) HostedCluster() *unstructured.Unstructured {
	if hosted := s.Hosted(); hosted != nil {
		return s.Facts.Get(HostedClusters, hosted.Namespace, hosted.Name)
	}
	return nil
}

// Proxies returns the Infra's ProxyServers, or the standalone one.
func (s *Site) Proxies() []*v1alpha1.ProxyServer {
	var list []*v1alpha1.ProxyServer
	for _, u := range s.Facts.List(ProxyServers, s.Infra.Namespace) {
		p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if !ok {
			continue
		}
		standalone := p.Spec.InfraRef == nil
		if standalone != (s.Standalone != nil) || standalone && p.Name != s.Infra.Name || !standalone && p.Spec.InfraRef.Name != s.Infra.Name {
			continue
		}
		p.Generation = u.GetGeneration() // Decode drops the generation
		list = append(list, p)
	}
	return list
}

// Labels returns the labels that distinguish a component's objects from oooi's other objects.
func (s *Site) Labels(component string) labels.Set {
	owner := v1alpha1.LabelInfra
	if s.Standalone != nil {
		owner = v1alpha1.LabelProxyServer
	}
	return labels.Set{owner: s.Infra.Name, v1alpha1.LabelComponent: component}
}

// Owns reports whether an object with these labels belongs to the Infra or the standalone ProxyServer.
func (s *Site) Owns(has map[string]string) bool {
	_, ofInfra := has[v1alpha1.LabelInfra]
	return ofInfra == (s.Standalone == nil) && s.Labels(has[v1alpha1.LabelComponent]).AsSelector().Matches(labels.Set(has))
}

// Pods returns the site's pods of a component, sorted by name.
func (s *Site) Pods(component string) []*corev1.Pod {
	return slices.DeleteFunc(All[corev1.Pod](s, Pods, AtInfra), func(p *corev1.Pod) bool {
		return !s.Owns(p.Labels) || p.Labels[v1alpha1.LabelComponent] != component
	})
}

// ControlPods returns the pods of control.
func (s *Site) ControlPods() []*corev1.Pod {
	return slices.DeleteFunc(All[corev1.Pod](s, Pods, AtSystem), func(p *corev1.Pod) bool {
		return p.Labels[v1alpha1.LabelComponent] != ComponentControl
	})
}

// ComponentControl is the component label of control's pods.
const ComponentControl = "control"

// List returns the objects of a kind.
func (s *Site) List(kind Kind, where Where) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, namespace := range s.namespaces[where] {
		list = append(list, s.Facts.List(kind, namespace)...)
	}
	return list
}

// All returns the decoded objects of a kind, without objects that cannot be decoded: the API server validates Kubernetes types.
func All[T any](s *Site, kind Kind, where Where) []*T {
	var list []*T
	for _, u := range s.List(kind, where) {
		if one, err := Decode[T](s.Facts, u); err == nil {
			list = append(list, one)
		}
	}
	return list
}

// Unread returns why data of the reads is missing, each reason once; nil if all was read.
func (s *Site) Unread(reads []Read) []string {
	var reasons []string
	add := func(reason string) {
		if reason != "" && !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	for _, r := range reads {
		if r.Optional {
			continue
		}
		for _, namespace := range s.namespaces[r.Where] {
			switch {
			case r.Kind == Problems:
				for _, a := range s.Responses(r.Where) {
					add(a.Refused)
				}
			case r.stored():
				add(s.Facts.Unread(r.Kind, namespace))
			}
		}
	}
	return reasons
}

// Err returns the first error of the reads; nil if all succeeded.
func (s *Site) Err(reads []Read) error {
	for _, r := range reads {
		for _, namespace := range s.namespaces[r.Where] {
			if err := s.Facts.Err(r.Kind, namespace); err != nil && !r.Optional && r.stored() {
				return err
			}
		}
	}
	return nil
}

// Objects returns the objects from which the model computes names and routes.
func (f *Facts) Objects() *model.Objects {
	all := &model.Objects{}
	for kind, decode := range map[Kind]func(*unstructured.Unstructured) objects.Object{
		Infras: objects.Decode[v1alpha1.Infra], ProxyServers: objects.Decode[v1alpha1.ProxyServer],
		HostedClusters: objects.Decode[objects.HostedCluster], Routes: objects.Decode[objects.Route],
		Services: objects.DecodeLabelledService, EndpointSlices: objects.Decode[objects.EndpointSlice],
		NADs: objects.DecodeNetworkAttachment, Leases: objects.DecodeDHCPLease,
	} {
		for _, u := range f.List(kind, "") {
			all.Add(decode(u))
		}
	}
	return all
}

// snapshotOf builds the model from the objects of the facts in scope; without apps addresses if apps is nil.
func snapshotOf(facts *Facts, scope model.Scope, apps *model.AppsOptions) *model.Snapshot {
	return model.Build(facts.Objects(), model.Options{
		Scope: scope, Apps: apps, Proxies: true, Backends: true, Names: model.NameRules{Management: facts.Management()}, Leases: []string{model.AllLeases},
	})
}

// OwnSnapshot returns the model with apps addresses, built only from objects that the Infra's DNS reads, without other Infras.
func (s *Site) OwnSnapshot() *model.Snapshot {
	scope := model.Scope{Infras: []string{s.Key()}}
	if s.Cluster != nil {
		scope.HostedClusters = []string{s.Cluster.Key()}
	}
	return snapshotOf(s.Facts, scope, &model.AppsOptions{})
}

// String returns the kind and the name.
func (s *Site) String() string { return s.Ref().String() }
