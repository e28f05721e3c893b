package setup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Known is the input of a plan: objects that ReadFiles reads from files, and what Discover adds from the cluster.
type Known struct {
	// Infra is the Infra with defaults, and Written the same without. A standalone ProxyServer has only an Infra, which is
	// derived from it. Both are nil until Discover, if the files only have a ProxyServer with spec.infraRef or flags describe the
	// Infra.
	Infra   *v1alpha1.Infra
	Written *unstructured.Unstructured
	// ProxyServer is the Infra's, or the standalone one. It is nil if no file has one, and the cluster has none that
	// differs from the one that setup renders. WrittenProxyServer is the same without defaults.
	ProxyServer        *v1alpha1.ProxyServer
	WrittenProxyServer *unstructured.Unstructured
	// Kept has "Infra" or "ProxyServer" if the object of that kind was read from the cluster and is not applied, so
	// that its field managers keep their fields.
	Kept []string
	// Objects are the other objects from which the model computes names and ports.
	Objects model.Objects
	// Attachments are the CNI configurations (JSON) of NetworkAttachmentDefinitions, by "namespace/name". MakeNetwork is the VMs'
	// network to create; nil to use one of them.
	Attachments map[string]string
	MakeNetwork *render.MachineNetwork
	// ControlPlane is set if the control plane's namespace exists, or if reading it is forbidden, and OpenShift if
	// SecurityContextConstraints assign the user of pods. Management has the domains of a management cluster that is OpenShift.
	ControlPlane, OpenShift bool
	Management              []string
	// AllowLoss makes what present VMs lose by the change a warning instead of an error.
	AllowLoss bool
	// VirtualIngress also deploys the VirtualIngress controller, once per cluster.
	VirtualIngress bool
	// Shared is SharedOnly or SharedNone to leave out objects, for printing; otherwise all are in the plan.
	Shared string

	// described is the Infra that flags describe; nil without any. completed is the same with what was found in the cluster; empty
	// if nothing was.
	described *Description
	completed string
	// cluster are the objects that were read from the cluster; nil without any. before and proxyBefore are the Infra and its
	// ProxyServer, or the standalone one, among them; nil if they do not exist or cannot be read.
	cluster     clusterObjects
	before      *v1alpha1.Infra
	proxyBefore *v1alpha1.ProxyServer
}

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

// knownNetworks returns the networks of the known NetworkAttachmentDefinitions.
func (k *Known) knownNetworks() cni.Networks {
	all := cni.Networks{}
	for nad, config := range k.Attachments {
		all[nad] = cni.Identity(config)
	}
	return all
}

// model returns the model of the known objects with an Infra and its ProxyServer, which may be nil, or a standalone one. It
// includes the Infra's ProxyServer even if that does not exist yet, because its listeners determine the ports of the proxy.
func (k *Known) model(infra *v1alpha1.Infra, server *v1alpha1.ProxyServer) *model.Snapshot {
	all := k.Objects
	if infra != nil && !k.standalone() {
		all.Infras = append(slices.Clone(all.Infras), infra)
	}
	if server == nil && infra != nil && infra.Spec.InfraComponents.Proxy.IsEnabled() {
		server = render.OwnProxyServer(infra)
	}
	if server != nil {
		all.ProxyServers = append(slices.Clone(all.ProxyServers), server)
	}
	all.NetworkAttachments = append(slices.Clone(all.NetworkAttachments), read.Attachments(k.knownNetworks())...)
	return model.Build(&all, model.Options{Proxies: true, Names: model.NameRules{Management: k.Management}})
}

// modelBefore returns the model of the objects before the change; nil if the Infra and the ProxyServer are new.
func (k *Known) modelBefore() *model.Snapshot {
	if k.before == nil && k.proxyBefore == nil {
		return nil
	}
	return k.model(k.before, k.proxyBefore)
}

// findHostedCluster returns a HostedCluster; nil if it is not known.
func (k *Known) findHostedCluster(key types.NamespacedName) *objects.HostedCluster {
	at := slices.IndexFunc(k.Objects.HostedClusters, func(hc *objects.HostedCluster) bool { return hc.Namespace == key.Namespace && hc.Name == key.Name })
	if at < 0 {
		return nil
	}
	return k.Objects.HostedClusters[at]
}

// hostedCluster returns the HostedCluster that the model finds for an Infra, else the one that it names; empty if the Infra is nil.
func (k *Known) hostedCluster(s *model.Snapshot, infra *v1alpha1.Infra) types.NamespacedName {
	if s == nil || infra == nil {
		return types.NamespacedName{}
	}
	if cluster := clusterOf(infra, s); cluster != nil && cluster.Kind == read.HostedClusterKind.Kind {
		return types.NamespacedName{Namespace: cluster.Namespace, Name: cluster.Name}
	}
	return k.namedHostedCluster(infra)
}

// namedHostedCluster returns the HostedCluster that an Infra names: the first that it may refer to and that exists, else the
// last. It is empty if the Infra names none.
func (k *Known) namedHostedCluster(infra *v1alpha1.Infra) types.NamespacedName {
	var named types.NamespacedName
	for _, named = range infra.Spec.NamedHostedCluster().Candidates(infra.Namespace) {
		if k.findHostedCluster(named) != nil {
			break
		}
	}
	return named
}

// pinHostedCluster sets the namespace in the Infra's reference to its HostedCluster, if the reference lacks it and the
// HostedCluster exists. Otherwise another one of that name, created later, could replace it. The HostedCluster that the
// Infra in the cluster refers to takes precedence.
func (k *Known) pinHostedCluster() error {
	ref := k.Infra.Spec.NamedHostedCluster()
	if !ref.IsSet() || ref.Namespace != "" {
		return nil
	}
	named := k.findHostedCluster(k.namedHostedCluster(k.Infra))
	if k.before != nil {
		if served := k.findHostedCluster(k.namedHostedCluster(k.before)); served != nil && served.Name == ref.Name {
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

// controlPlane returns the namespace of the control plane, whether or not it exists: the hosted cluster's, else the
// one that the Infra names. It is empty if neither is known.
func (k *Known) controlPlane(s *model.Snapshot) string {
	cluster := cmp.Or(clusterOf(k.Infra, s), &model.Cluster{})
	proxy := cmp.Or(k.Infra.Spec.InfraComponents.Proxy, &v1alpha1.InfraProxy{})
	return cmp.Or(cluster.ControlPlaneNamespace, proxy.ControlPlaneNamespace, controlPlaneOf(k.namedHostedCluster(k.Infra)))
}

func controlPlaneOf(hosted types.NamespacedName) string {
	if hosted.Name == "" {
		return ""
	}
	return model.ControlPlaneNamespace(hosted.Namespace, hosted.Name)
}

// ownVMNamespace returns the namespace of a HostedCluster's VMs if it is not the control plane's; empty otherwise.
func (k *Known) ownVMNamespace(hosted types.NamespacedName) string {
	return cmp.Or(k.findHostedCluster(hosted), &objects.HostedCluster{}).Spec.Platform.VMNamespace()
}

// vmNamespace returns the namespace of a HostedCluster's VMs; empty without a HostedCluster.
func (k *Known) vmNamespace(hosted types.NamespacedName) string {
	return cmp.Or(k.ownVMNamespace(hosted), controlPlaneOf(hosted))
}
