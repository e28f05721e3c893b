package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Kinds that only setup reads. A ClusterUserDefinedNetwork is a network for which OVN-Kubernetes creates a
// NetworkAttachmentDefinition in each selected namespace.
var (
	clusterNetworkKind = schema.GroupVersionKind{Group: "k8s.ovn.org", Version: "v1", Kind: "ClusterUserDefinedNetwork"}
	configMapKind      = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	deploymentKind     = appsv1.SchemeGroupVersion.WithKind("Deployment")
	leaseKind          = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	namespaceKind      = corev1.SchemeGroupVersion.WithKind("Namespace")
	podKind            = corev1.SchemeGroupVersion.WithKind("Pod")
	statefulSetKind    = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
)

// clusterObjects are the objects that were read from the cluster, by kind and "namespace/name"; nil for one that does not exist.
// Kinds that the cluster does not serve are missing.
type clusterObjects map[schema.GroupVersionKind]map[string]*unstructured.Unstructured

// place is where objects of a kind are read: one object, those of a namespace or, if at is empty, of all namespaces.
type place struct {
	kind     schema.GroupVersionKind
	at       client.ObjectKey
	required bool               // a missing right is an error
	instead  []client.ObjectKey // read without the right to list at
	labels   []string           // that the objects have, with any value
}

// read reads the objects at places. It is no error if an object does not exist, or if the cluster does not serve a kind.
func (o clusterObjects) read(ctx context.Context, c client.Client, places []place) error {
	for _, p := range places {
		err := o.readAt(ctx, c, p, p.at)
		if apierrors.IsForbidden(err) {
			for _, at := range p.instead {
				if one := o.readAt(ctx, c, p, at); !apierrors.IsForbidden(one) {
					err = one
				}
			}
		}
		if err != nil && (p.required || !apierrors.IsForbidden(err)) {
			return err
		}
	}
	return nil
}

func (o clusterObjects) readAt(ctx context.Context, c client.Client, p place, at client.ObjectKey) (err error) {
	r, found := &read.Reader{Client: c}, map[string]*unstructured.Unstructured{}
	if at.Name != "" {
		found[at.String()], err = r.Object(ctx, p.kind, at)
	} else {
		err = r.In(ctx, p.kind, at.Namespace, func(u *unstructured.Unstructured) { found[client.ObjectKeyFromObject(u).String()] = u }, client.HasLabels(p.labels))
	}
	switch {
	case errors.Is(err, read.ErrNotServed):
		return nil
	case apierrors.IsNotFound(err):
		err = nil
	case err != nil:
		found = nil
	}
	if o[p.kind] == nil {
		o[p.kind] = map[string]*unstructured.Unstructured{}
	}
	maps.Copy(o[p.kind], found)
	return err
}

// get returns an object; nil if it does not exist or was not read. known is set if it was read.
func (o clusterObjects) get(kind schema.GroupVersionKind, at client.ObjectKey) (u *unstructured.Unstructured, known bool) {
	u, known = o[kind][at.String()]
	return u, known
}

// list returns the objects of a kind in a namespace, or in all if it is empty, sorted by namespace and name.
func (o clusterObjects) list(kind schema.GroupVersionKind, namespace string) []*unstructured.Unstructured {
	var list []*unstructured.Unstructured
	for _, key := range slices.Sorted(maps.Keys(o[kind])) {
		if u := o[kind][key]; u != nil && (namespace == "" || u.GetNamespace() == namespace) {
			list = append(list, u)
		}
	}
	return list
}

// typed converts objects, without those that cannot be converted: the API server validates types of Kubernetes.
func typed[T any](list []*unstructured.Unstructured) []*T {
	var all []*T
	for _, u := range list {
		one := new(T)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, one) == nil {
			all = append(all, one)
		}
	}
	return all
}

// Discover adds objects and properties of the cluster to those that were read from files. Objects in files take
// precedence. It returns an error if the cluster cannot be read, or if it does not have one Infra and one ProxyServer to set up.
func (k *Known) Discover(ctx context.Context, c client.Client) error {
	o := clusterObjects{}
	if err := o.read(ctx, c, k.places()); err != nil {
		return err
	}
	if err := k.use(o); err != nil {
		return err
	}
	snapshot := k.model(k.Infra, k.ProxyServer)
	hosted, served := k.hostedCluster(snapshot, k.Infra), k.hostedCluster(k.modelBefore(), k.before)
	control, services := client.ObjectKey{Name: k.controlPlane(snapshot)}, k.serviceNamespaces(snapshot)
	list := []place{{kind: namespaceKind, at: control}}
	add := func(kind schema.GroupVersionKind, required bool, namespaces ...string) {
		for _, namespace := range slices.Compact(namespaces) {
			list = append(list, place{kind: kind, at: client.ObjectKey{Namespace: namespace}, required: required})
		}
	}
	add(read.RouteKind, true, control.Name)
	add(read.ServiceKind, true, services...)
	add(read.NodePoolKind, false, hosted.Namespace)
	add(read.MachineKind, false, k.vmNamespace(hosted), k.vmNamespace(served))
	list = slices.DeleteFunc(list, func(p place) bool { return p.at == client.ObjectKey{} }) // of an unknown hosted cluster
	if err := o.read(ctx, c, list); err != nil {
		return err
	}
	namespace, known := o.get(namespaceKind, control)
	k.ControlPlane = control.Name != "" && (namespace != nil || !known)
	for _, namespace := range services {
		if err := k.addToModel(append(o.list(read.RouteKind, namespace), o.list(read.ServiceKind, namespace)...)...); err != nil {
			return err
		}
	}
	return nil
}

// places returns what does not depend on other objects of the cluster.
func (k *Known) places() []place {
	key, openShift := k.Key(), client.ObjectKey{Name: "cluster"}
	own := client.ObjectKey{Namespace: key.Namespace}
	networks, hosted := []client.ObjectKey{own}, []client.ObjectKey(nil)
	if k.described != nil && k.described.HostedCluster != "" {
		hosted = append(hosted, parseKey(k.described.HostedCluster))
	}
	if k.Infra != nil {
		hosted = k.Infra.Spec.NamedHostedCluster().Candidates(key.Namespace)
		networks = append(networks, client.ObjectKey{Namespace: parseKey(k.network()).Namespace})
	}
	list := []place{
		{kind: read.InfraKind, instead: []client.ObjectKey{key}, required: k.described != nil},
		{kind: read.ProxyServerKind, instead: []client.ObjectKey{own}, required: true},
		{kind: read.HostedClusterKind, instead: hosted, required: k.described == nil},
		{kind: read.AttachmentKind, instead: networks, required: true},
		{kind: clusterNetworkKind},
		{kind: read.ClusterDNSKind, at: openShift},
		{kind: read.ClusterIngressKind, at: openShift},
		{kind: read.ConstraintsKind, at: openShift},
		{kind: namespaceKind, at: client.ObjectKey{Name: key.Namespace}},
		{kind: podKind, at: own, labels: []string{v1alpha1.LabelComponent}},
		{kind: statefulSetKind, at: own},
		{kind: deploymentKind, at: own},
		{kind: leaseKind, at: own, labels: []string{leases.PoolLabel}},
	}
	for _, resolver := range ClusterResolvers() {
		list = append(list, place{kind: read.ServiceKind, at: resolver})
	}
	for _, config := range read.MultusConfigs {
		list = append(list, place{kind: configMapKind, at: config})
	}
	if k.described != nil {
		list = append(list, place{kind: read.NodePoolKind}, place{kind: read.MachineKind})
	}
	return list
}

// serviceNamespaces returns the namespaces of the Services to which the proxy connects, and of internalProxyService.
func (k *Known) serviceNamespaces(s *model.Snapshot) []string {
	proxy, server := cmp.Or(k.Infra.Spec.InfraComponents.Proxy, &v1alpha1.InfraProxy{}), cmp.Or(k.ProxyServer, &v1alpha1.ProxyServer{})
	all := []string{"", k.controlPlane(s), parseKey(foreignService(k.Infra, s)).Namespace, proxy.ControlPlaneNamespace}
	for i := range server.Spec.Backends {
		all = append(all, server.Spec.Backends[i].TargetNamespace)
	}
	slices.Sort(all)
	return slices.Compact(all)[1:]
}

// foreignService returns the Service by which pods reach the proxy, "namespace/name"; empty if it is its own, or none.
func foreignService(infra *v1alpha1.Infra, s *model.Snapshot) string {
	i := s.Infra(keyOf(infra))
	if i == nil || i.Proxy == nil || i.Proxy.Service == keyOf(infra)+"-proxy" {
		return ""
	}
	return i.Proxy.Service
}

// use adds objects that were read from the cluster, and completes the Infra and the ProxyServer by them.
func (k *Known) use(o clusterObjects) error {
	k.cluster, k.OpenShift = o, k.OpenShift || o[read.ConstraintsKind] != nil
	k.Management = ManagementDomains(append(o.list(read.ClusterDNSKind, ""), o.list(read.ClusterIngressKind, "")...))
	for _, u := range o.list(read.AttachmentKind, "") {
		nad := client.ObjectKeyFromObject(u).String()
		if _, inFile := k.Attachments[nad]; !inFile {
			k.Attachments[nad], _, _ = unstructured.NestedString(u.Object, "spec", "config")
		}
	}
	if len(k.Objects.HostedClusters) == 0 {
		if err := k.addToModel(o.list(read.HostedClusterKind, "")...); err != nil {
			return err
		}
	}
	if err := k.useInfras(o); err != nil {
		return err
	}
	if err := k.useProxyServers(o.list(read.ProxyServerKind, "")); err != nil {
		return err
	}
	if k.standalone() {
		return k.deriveInfra() // other objects may define the subnet of its address
	}
	return k.pinHostedCluster()
}

// useInfras sets the Infra before the change and other ones, which may be on the same VLAN, and the Infra to set up unless a
// file contains it.
func (k *Known) useInfras(o clusterObjects) error {
	for _, u := range o.list(read.InfraKind, "") {
		infra, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra)
		switch own := client.ObjectKeyFromObject(u) == k.Key(); {
		case ok && !own:
			k.Objects.Infras = append(k.Objects.Infras, infra)
		case ok && k.standalone():
			return fmt.Errorf("Infra %s exists and its proxy has the name of this ProxyServer; rename the ProxyServer, or set its spec.infraRef to that Infra", k.Key()) //nolint:staticcheck // a kind begins with a capital
		case ok:
			infra.Default()
			k.before = infra
		}
	}
	switch {
	case k.described != nil:
		return k.describe(o)
	case k.Infra != nil:
		return nil
	case k.before == nil:
		return fmt.Errorf("ProxyServer %s/%s, spec.infraRef: Infra %s is not in the files, and was not found in a cluster; create it, or specify its file with -f", k.ProxyServer.Namespace, k.ProxyServer.Name, k.Key().Name)
	}
	u, _ := o.get(read.InfraKind, k.Key())
	k.Infra, k.Written, k.Kept = k.before.DeepCopy(), documents.Manifest(u), append(k.Kept, u.GetKind())
	return nil
}

// useProxyServers sets the ProxyServer before the change, other standalone ones, which may be on the same VLAN, and unless a file
// contains one the Infra's, if setup would not render it likewise. It returns an error if another ProxyServer has the name of the
// Infra, or if several refer to it: setup deploys one, and would drop the routes of the others. With one in a file, those that
// setup applied before are no others, because setup deletes them.
func (k *Known) useProxyServers(list []*unstructured.Unstructured) error {
	var names []string
	key, inFile := k.Key(), k.ProxyServer != nil
	if inFile {
		names = append(names, k.ProxyServer.Name)
	}
	for _, u := range list {
		server, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer)
		if !ok {
			continue
		}
		server.Default()
		ref, here := server.Spec.InfraRef, server.Namespace == key.Namespace
		switch belongs := here && ref != nil && ref.Name == key.Name; {
		case inFile && here && server.Name == k.ProxyServer.Name:
			k.proxyBefore = server
		case here && server.Name == key.Name && !belongs:
			return fmt.Errorf("ProxyServer %s has the name of the Infra and does not belong to it; rename the Infra, or set spec.infraRef of the ProxyServer to it", key)
		case ref == nil:
			k.Objects.ProxyServers = append(k.Objects.ProxyServers, server)
		case !belongs || k.standalone() || server.Name == key.Name && !k.hasCustomSpec(server), inFile && u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy:
		default:
			names = append(names, server.Name)
			if !inFile {
				k.ProxyServer, k.WrittenProxyServer, k.proxyBefore = server.DeepCopy(), documents.Manifest(u), server
			}
		}
	}
	switch {
	case len(names) > 1:
		return fmt.Errorf("ProxyServers %s refer to Infra %s in spec.infraRef, and an Infra has one: move their backends to one of them, and delete the others", strings.Join(names, ", "), key)
	case inFile || k.ProxyServer == nil:
		return nil
	}
	return k.updateServerIP()
}

// hasCustomSpec reports whether a ProxyServer has fields that setup does not render, and keeps.
func (k *Known) hasCustomSpec(server *v1alpha1.ProxyServer) bool {
	own := render.OwnProxyServer(k.Infra)
	own.Spec.NetworkConfig.ServerIP = server.Spec.NetworkConfig.ServerIP
	return !equality.Semantic.DeepEqual(own.Spec, server.Spec)
}

// updateServerIP sets the address of a ProxyServer from the cluster to the Infra's. Without a difference in the address, it marks
// the ProxyServer as kept.
func (k *Known) updateServerIP() error {
	present, proxy := &k.ProxyServer.Spec.NetworkConfig.ServerIP, k.Infra.Spec.InfraComponents.Proxy
	address := func(text string) string { text, _, _ = strings.Cut(text, "/"); return text }
	if proxy == nil || proxy.ServerIP == "" || address(*present) == address(proxy.ServerIP) {
		k.Kept = append(k.Kept, read.ProxyServerKind.Kind)
		return nil
	}
	*present = proxy.ServerIP
	if err := unstructured.SetNestedField(k.WrittenProxyServer.Object, proxy.ServerIP, "spec", "networkConfig", "serverIP"); err != nil {
		return fmt.Errorf("ProxyServer %s/%s, spec.networkConfig: %w", k.ProxyServer.Namespace, k.ProxyServer.Name, err)
	}
	return nil
}

// ManagementDomains returns the domains of an OpenShift cluster in its objects of config.openshift.io, sorted.
func ManagementDomains(configs []*unstructured.Unstructured) []string {
	var domains []string
	for _, u := range configs {
		for _, field := range []string{"baseDomain", "domain", "appsDomain"} { // of DNS, and of Ingress
			if domain, _, _ := unstructured.NestedString(u.Object, "spec", field); domain != "" {
				domains = append(domains, domain)
			}
		}
	}
	slices.Sort(domains)
	return slices.Compact(domains)
}
