package setup

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/schema"
)

// Known is the input of a plan: objects that ReadFiles reads from files, and what Discover adds from the cluster.
type Known struct {
	// Infra is the Infra with defaults. It is derived from a standalone ProxyServer. If the files only have a
	// ProxyServer with spec.infraRef, it is nil until Discover reads it.
	Infra *v1alpha1.Infra
	// Written is the Infra without defaults; nil for a standalone ProxyServer.
	Written *unstructured.Unstructured
	// ProxyServer is the Infra's, or the standalone one. It is nil if no file has one, and the cluster has none that
	// differs from the one that setup renders. WrittenProxyServer is the same without defaults.
	ProxyServer        *v1alpha1.ProxyServer
	WrittenProxyServer *unstructured.Unstructured
	// assumedSubnet is the subnet of a standalone ProxyServer whose address has no prefix length, if no other object
	// defines it; the zero Prefix otherwise.
	assumedSubnet netip.Prefix
	// Kept has "Infra" or "ProxyServer" if the object of that kind was read from the cluster and is not applied, so
	// that its field managers keep their fields.
	Kept []string
	// Objects are the other objects from which the model computes names and ports.
	Objects model.Objects
	// Attachments are the CNI configurations (JSON) of NetworkAttachmentDefinitions, by "namespace/name".
	Attachments map[string]string
	// found are the networks of the cluster's NetworkAttachmentDefinitions.
	found cni.Networks
	// MakeNetwork is the VMs' network to create; nil to use an existing one.
	MakeNetwork *render.MachineNetwork
	// ownNetwork is set if setup created the VMs' network for this Infra.
	ownNetwork bool
	// NetworkHint is appended to the error for a missing network. It says where networks of the same name exist; empty
	// if nowhere.
	NetworkHint string
	// PodSecurity is the Pod Security level that the Infra's namespace enforces; empty if it enforces none or cannot be
	// read.
	PodSecurity string
	// ControlPlane is set if the control plane's namespace exists, or if reading it is forbidden.
	ControlPlane bool
	// OpenShift is set if SecurityContextConstraints assign the user of pods.
	OpenShift bool
	// Management has the domains of the management cluster, sorted; none if it is not OpenShift or reading them is
	// forbidden.
	Management []string
	// holders are the addresses of the Infra's workloads before the change.
	holders []heldAddress
	// sets are the Infra's present StatefulSets.
	sets render.Sets
	// running are the StatefulSets of the Infra that have a pod before the change.
	running map[string]bool
	// serving are the components of the Infra that have a pod before the change, even those that its present spec disables.
	serving map[string]bool
	// before is the Infra in the cluster; nil if it does not exist or cannot be read.
	before *v1alpha1.Infra
	// proxyBefore is ProxyServer as it is in the cluster; nil if it does not exist or cannot be read.
	proxyBefore *v1alpha1.ProxyServer
	// vms are the hosted cluster's VMs, if Multus isolates namespaces.
	vms isolatedVMs
	// leased are the bound DHCP leases of the Infra, and leasedByOthers those of other Infras on its network.
	leased, leasedByOthers []*leases.Lease
	// attached are the VirtualMachineInstances on the Infra's network before the change.
	attached []*unstructured.Unstructured
	// AllowLoss makes what present VMs lose by the change a warning instead of an error.
	AllowLoss bool
	// VirtualIngress also deploys the VirtualIngress controller, once per cluster.
	VirtualIngress bool
	// Shared is SharedOnly or SharedNone to leave out objects, for printing; otherwise all are in the plan.
	Shared string
}

// Values of Known.Shared. Objects that all Infras of a cluster share are the CRDs, control and its namespace, and the
// VirtualIngress controller.
const (
	SharedAll  = "all"
	SharedOnly = "only"
	SharedNone = "none"
)

// ReadFiles reads YAML or JSON documents from files and URLs; the name "-" stands for in. Objects without a namespace
// get the given one. described is the Infra that flags describe; nil if no flag does. ReadFiles returns an error if an
// object is invalid or of an unsupported kind, if described is nil and the files contain no Infra or ProxyServer, or if
// described is not nil and the files contain an Infra.
func ReadFiles(names []string, in io.Reader, namespace string, described *Description) (*Known, error) {
	k := &Known{Attachments: map[string]string{}}
	all, err := documents.Read(names, in)
	if err != nil {
		return nil, err //nolint:wrapcheck // documents wraps it
	}
	for _, o := range all {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		if err := k.add(o); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", o.File, o.Document, err)
		}
	}
	switch {
	case described != nil && k.Infra != nil:
		return nil, fmt.Errorf("flags describe Infra %s and the files contain Infra %s; specify one of them", described.Infra, keyOf(k.Infra))
	case described != nil:
		err := described.describe(k)
		return k, err
	case k.Infra == nil && k.ProxyServer == nil:
		return nil, errors.New("no Infra or ProxyServer found in the files; specify a file that contains one with -f")
	case k.Infra != nil && k.ProxyServer != nil && (k.ProxyServer.Spec.InfraRef == nil || k.ProxyServer.Spec.InfraRef.Name != k.Infra.Name):
		return nil, fmt.Errorf("spec.infraRef of ProxyServer %s does not refer to Infra %s of the same files; set it to the Infra, or run setup for each of them", k.ProxyServer.Name, k.Infra.Name)
	case k.Infra == nil && k.ProxyServer.Spec.InfraRef == nil:
		err := k.deriveInfra()
		return k, err
	}
	return k, nil
}

// Key returns the namespace and name of the Infra or standalone ProxyServer.
func (k *Known) Key() types.NamespacedName {
	if k.Infra == nil {
		return types.NamespacedName{Namespace: k.ProxyServer.Namespace, Name: k.ProxyServer.Spec.InfraRef.Name}
	}
	return types.NamespacedName{Namespace: k.Infra.Namespace, Name: k.Infra.Name}
}

// add adds one object of a file. It returns an error for kinds that setup does not read.
func (k *Known) add(u *documents.Object) error {
	switch kind := u.GroupVersionKind().GroupKind(); kind.String() {
	case "Infra." + v1alpha1.GroupName:
		infra := &v1alpha1.Infra{}
		if err := u.Strict(infra); err != nil {
			return fmt.Errorf("in %s: %w", strings.TrimSpace("Infra "+u.GetName()), err)
		}
		if k.Infra != nil {
			return fmt.Errorf("found a second Infra %s; specify one Infra at a time", u.GetName())
		}
		if err := checkName("Infra", infra.Name, validation.IsDNS1123Label); err != nil { // names of Services contain it
			return err
		}
		infra.Namespace = u.GetNamespace()
		infra.Default()
		k.Infra, k.Written = infra, documents.Manifest(u.Unstructured)
		return defaultLists(k.Written)
	case "ProxyServer." + v1alpha1.GroupName:
		server := &v1alpha1.ProxyServer{}
		if err := u.Strict(server); err != nil {
			return fmt.Errorf("in %s: %w", strings.TrimSpace("ProxyServer "+u.GetName()), err)
		}
		if k.ProxyServer != nil {
			return fmt.Errorf("found a second ProxyServer %s; specify one ProxyServer at a time: an Infra has one, with all backends, and setup deploys one standalone proxy", u.GetName())
		}
		valid := validation.IsDNS1123Subdomain
		if server.Spec.InfraRef == nil {
			valid = validation.IsDNS1123Label
		}
		if err := checkName("ProxyServer", server.Name, valid); err != nil {
			return err
		}
		server.Namespace = u.GetNamespace()
		server.Default()
		k.ProxyServer, k.WrittenProxyServer = server, documents.Manifest(u.Unstructured)
		return defaultLists(k.WrittenProxyServer)
	case "HostedCluster.hypershift.openshift.io":
		return k.addToModel(objects.Decode[objects.HostedCluster](u.Unstructured))
	case "Route.route.openshift.io":
		return k.addToModel(objects.Decode[objects.Route](u.Unstructured))
	case "Service":
		return k.addToModel(objects.Decode[objects.LabelledService](u.Unstructured))
	case "NetworkAttachmentDefinition.k8s.cni.cncf.io":
		config, _, err := unstructured.NestedString(u.Object, "spec", "config")
		if err != nil {
			return fmt.Errorf("reading spec.config of NetworkAttachmentDefinition %s: %w", u.GetName(), err)
		}
		k.Attachments[u.GetNamespace()+"/"+u.GetName()] = config
	default:
		return fmt.Errorf("%s %s: unsupported kind; expected Infra, ProxyServer, HostedCluster, Route, Service or NetworkAttachmentDefinition", u.GetKind(), u.GetName())
	}
	return nil
}

// defaultLists sets the defaults inside of the lists of an Infra or ProxyServer, so that GitOps tools find no difference from
// the object in the cluster.
func defaultLists(u *unstructured.Unstructured) error {
	s, err := schema.Of(u.GetKind())
	if err == nil {
		s.DefaultLists(u)
	}
	return err //nolint:wrapcheck // schema wraps it
}

// Validate returns an error for values in the Infra and the ProxyServer that the schemas of their APIs do not allow.
func (k *Known) Validate() error {
	var errs []error
	for _, u := range []*unstructured.Unstructured{k.Written, k.WrittenProxyServer} {
		if u == nil {
			continue
		}
		s, err := schema.Of(u.GetKind())
		if err == nil {
			err = s.Validate(u)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %s/%s is invalid: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// checkName returns an error for a name that the API server would refuse, for the object or for those with its name.
func checkName(kind, name string, valid func(string) []string) error {
	if name == "" {
		return fmt.Errorf("the %s has no name; set metadata.name", kind)
	}
	if reasons := valid(name); len(reasons) > 0 {
		return fmt.Errorf("in %s %s: metadata.name: %s", kind, name, strings.Join(reasons, "; "))
	}
	return nil
}

// addToModel adds an object to those of the model. It returns an error for an object that could not be decoded.
func (k *Known) addToModel(o objects.Object) error {
	if broken, ok := o.(*objects.Broken); ok {
		return fmt.Errorf("decoding %s %s: %s", broken.Kind, broken.Name, broken.Error)
	}
	k.Objects.Add(o)
	return nil
}
