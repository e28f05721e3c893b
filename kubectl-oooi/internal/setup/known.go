package setup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// Known is the input of a plan: objects that ReadFiles reads from files, and what Discover adds from the cluster.
type Known struct {
	// Infra is the Infra with defaults, and Written the Infra without. For a standalone ProxyServer, Infra is derived from it and Written
	// is nil. Both are nil until Discover if the files only have a ProxyServer with spec.infraRef, or flags describe the Infra.
	Infra   *v1alpha1.Infra
	Written *unstructured.Unstructured
	// ProxyServer is the Infra's or the standalone ProxyServer. It is nil if files lack it and the cluster's does not differ from the
	// rendered one. WrittenProxyServer is the ProxyServer without defaults.
	ProxyServer        *v1alpha1.ProxyServer
	WrittenProxyServer *unstructured.Unstructured
	// Kept has "Infra" or "ProxyServer" if that object was read from the cluster and is not applied, so that field managers keep their
	// fields.
	Kept []string
	// MakeNetwork is the VMs' network to create; nil to use an existing one.
	MakeNetwork *render.MachineNetwork
	// ControlPlane is set if the control plane's namespace exists, or if reading it is forbidden, and OpenShift if
	// SecurityContextConstraints assign the user of pods.
	ControlPlane, OpenShift bool
	// AllowLoss turns losses of present VMs into warnings instead of errors.
	AllowLoss bool
	// VirtualIngress also deploys the VirtualIngress controller, once per cluster.
	VirtualIngress bool
	// Shared is SharedOnly or SharedNone to omit objects, for printing; empty for all objects.
	Shared string

	// described is the Infra that flags describe; nil without flags. completed describes it with values found in the cluster; empty if none
	// were found.
	described *Description
	completed string
	// egressHosts are the names of all EgressHosts in files, and egressFile is the first of these files.
	egressHosts []string
	egressFile  string
	// ignored are warnings about objects in files.
	ignored []string
	// files are the other objects in files, and live are the cluster's objects after Discover, which sets discovered. before and
	// proxyBefore are the live Infra and its ProxyServer, or the standalone one; nil if they do not exist or cannot be read.
	files       []*unstructured.Unstructured
	live        *site.Facts
	discovered  bool
	before      *v1alpha1.Infra
	proxyBefore *v1alpha1.ProxyServer
}

// newKnown returns an input without objects.
func newKnown() *Known { return &Known{live: site.NewFacts(time.Time{})} }

// Values of Known.Shared. Objects that all Infras of a cluster share are the CRDs, control and its namespace, and the
// VirtualIngress controller.
const (
	SharedAll  = "all"
	SharedOnly = "only"
	SharedNone = "none"
)

// Key returns the namespace and name of the Infra or standalone ProxyServer.
func (k *Known) Key() types.NamespacedName {
	switch {
	case k.Infra != nil:
		return types.NamespacedName{Namespace: k.Infra.Namespace, Name: k.Infra.Name}
	case k.described != nil:
		return k.described.Infra
	case k.standalone():
		return types.NamespacedName{Namespace: k.ProxyServer.Namespace, Name: k.ProxyServer.Name}
	}
	return types.NamespacedName{Namespace: k.ProxyServer.Namespace, Name: k.ProxyServer.Spec.InfraRef.Name}
}

// keyOf returns "namespace/name", the key of an Infra in the model.
func keyOf(i *v1alpha1.Infra) string { return i.Namespace + "/" + i.Name }

// standalone reports whether setup deploys a ProxyServer without an Infra.
func (k *Known) standalone() bool { return k.ProxyServer != nil && k.ProxyServer.Spec.InfraRef == nil }

// ref returns a reference to the Infra or standalone ProxyServer.
func (k *Known) ref() model.Ref {
	kind := read.InfraKind.Kind
	if k.standalone() {
		kind = read.ProxyServerKind.Kind
	}
	return model.ParseRef(kind, k.Key().String())
}

// network returns the name of the VMs' NetworkAttachmentDefinition.
func (k *Known) network() string { return networkOf(k.Infra) }

func networkOf(i *v1alpha1.Infra) string {
	return i.Spec.NetworkConfig.NetworkAttachment(i.Namespace).String()
}

// desired returns the objects in files, the Infra and its ProxyServer, or the standalone one, and the VMs' network to create. It includes
// the Infra's ProxyServer even if it does not exist yet, because its listeners determine the proxy's ports.
func (k *Known) desired() []*unstructured.Unstructured {
	list := slices.Clone(k.files)
	if k.Infra != nil && !k.standalone() {
		list = append(list, objectOf(site.Infras, k.Infra))
	}
	if k.MakeNetwork != nil && k.Infra != nil {
		key := parseKey(k.network())
		config, _ := k.MakeNetwork.Config(key) // change reports the error
		nad := inventory.Entry{APIVersion: site.NADs.GroupVersion().String(), Kind: site.NADs.Kind, Namespace: key.Namespace, Name: key.Name}.Object()
		nad.Object["spec"] = map[string]any{"config": config}
		list = append(list, nad)
	}
	return append(list, proxyOf(k.Infra, k.ProxyServer)...)
}

// proxyOf returns a ProxyServer or, if it is nil, the ProxyServer that setup renders for an Infra; nil if the Infra disables the proxy.
func proxyOf(infra *v1alpha1.Infra, server *v1alpha1.ProxyServer) []*unstructured.Unstructured {
	if server == nil && infra != nil && infra.Spec.InfraComponents.Proxy.IsEnabled() {
		server = render.OwnProxyServer(infra)
	}
	if server == nil {
		return nil
	}
	return []*unstructured.Unstructured{objectOf(site.ProxyServers, server)}
}

// objectOf converts an object of a kind.
func objectOf(kind site.Kind, o any) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // the converter supports all fields of oooi's types
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetGroupVersionKind(kind)
	return u
}

// site returns the site with the objects of the input.
func (k *Known) site() *site.Site {
	return site.New(k.live.With(k.desired()...), k.Key().String(), nil)
}

// siteBefore returns the site before the change; nil if the Infra and the ProxyServer are new.
func (k *Known) siteBefore() *site.Site {
	if k.before == nil && k.proxyBefore == nil {
		return nil
	}
	list := append(slices.Clone(k.files), proxyOf(k.before, k.proxyBefore)...)
	if k.before != nil {
		list = append(list, objectOf(site.Infras, k.before))
	}
	return site.New(k.live.With(list...), k.Key().String(), nil)
}

// deriveInfra sets Infra to the one that is derived from the standalone ProxyServer and the known objects.
func (k *Known) deriveInfra() error {
	s := k.site()
	k.Infra = s.Infra
	return s.Invalid
}

// pinHostedCluster sets the namespace in the Infra's reference to its HostedCluster, if the reference lacks it and the
// HostedCluster exists. Otherwise a HostedCluster with the same name, created later, could replace it. The HostedCluster to which the
// live Infra refers takes precedence.
func (k *Known) pinHostedCluster() error {
	ref := k.Infra.Spec.NamedHostedCluster()
	if !ref.IsSet() || ref.Namespace != "" {
		return nil
	}
	found := k.live.With(k.files...)
	named := found.HostedCluster(found.Named(k.Infra))
	if k.before != nil {
		if served := found.HostedCluster(found.Named(k.before)); served != nil && served.Name == ref.Name {
			named = served
		}
	}
	if named == nil {
		return nil
	}
	path := []string{"spec", "hostedClusterRef", "namespace"}
	if ref != k.Infra.Spec.HostedClusterRef {
		path = slices.Insert(path, 1, "appsIngress")
	}
	ref.Namespace = named.Namespace
	if err := unstructured.SetNestedField(k.Written.Object, ref.Namespace, path...); err != nil {
		return fmt.Errorf("setting %s: %w", strings.Join(path, "."), err)
	}
	return nil
}
