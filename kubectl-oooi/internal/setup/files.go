package setup

import (
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Known is the input of a plan: objects that ReadFiles reads from files, and what Discover adds from the cluster.
type Known struct {
	Infra *v1alpha1.Infra
	// Written is the Infra without defaults; nil for a standalone ProxyServer.
	Written *unstructured.Unstructured
	// ProxyServer is the Infra's, or the standalone one; nil if neither files nor the cluster have one with fields of
	// its own. WrittenProxyServer is the same without defaults.
	ProxyServer        *v1alpha1.ProxyServer
	WrittenProxyServer *unstructured.Unstructured
	// Kept are the kinds of those two that exist in the cluster and are in no file. They are not applied, so that
	// their field managers keep their fields.
	Kept []string
	// Objects are the other objects from which the model computes names and ports.
	Objects model.Objects
	// Attachments are the CNI configurations of NetworkAttachmentDefinitions, by "namespace/name".
	Attachments map[string]string
	// MakeNetwork is the VMs' network to create; nil to use an existing one.
	MakeNetwork *render.MachineNetwork
	// ownNetwork is set if setup created the VMs' network for this Infra.
	ownNetwork bool
	// NetworkHint is appended to the error for a missing network: where networks of the same name exist.
	NetworkHint string
	// PodSecurity is the level that the Infra's namespace enforces; empty for none.
	PodSecurity string
	// ControlPlane is set if the control plane's namespace exists.
	ControlPlane bool
	OpenShift    bool
	// Management are the domains of the management cluster; empty unless it is OpenShift.
	Management []string
	// holders are the addresses of the Infra's workloads before the change.
	holders []heldAddress
	// VirtualIngress also deploys the VirtualIngress controller, once per cluster.
	VirtualIngress bool
}

// ReadFiles reads YAML or JSON documents from files; the name "-" stands for in. Objects without a namespace get
// the given one. described is the Infra that flags describe; nil if no flag does. The files must contain an Infra
// or a ProxyServer, unless described is set; then they must not contain an Infra.
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
		return nil, errors.New("the files contain neither an Infra nor a ProxyServer")
	case k.Infra == nil && k.ProxyServer.Spec.InfraRef == nil:
		err := k.deriveInfra()
		return k, err
	}
	return k, nil
}

// add adds one object of a file. It returns an error for kinds that setup does not read.
func (k *Known) add(u *documents.Object) error {
	switch kind := u.GroupVersionKind().GroupKind(); kind.String() {
	case "Infra." + v1alpha1.GroupName:
		infra := &v1alpha1.Infra{}
		if err := u.Strict(infra); err != nil {
			return fmt.Errorf("in Infra %s: %w", u.GetName(), err)
		}
		if k.Infra != nil {
			return fmt.Errorf("found a second Infra %s; specify one Infra at a time", u.GetName())
		}
		if infra.Name == "" {
			return errors.New("the Infra has no metadata.name")
		}
		infra.Namespace = u.GetNamespace()
		infra.Default()
		k.Infra, k.Written = infra, manifestOf(u.Unstructured)
	case "ProxyServer." + v1alpha1.GroupName:
		server := &v1alpha1.ProxyServer{}
		if err := u.Strict(server); err != nil {
			return fmt.Errorf("in ProxyServer %s: %w", u.GetName(), err)
		}
		if k.ProxyServer != nil {
			return fmt.Errorf("found a second ProxyServer %s; specify one ProxyServer at a time", u.GetName())
		}
		server.Namespace = u.GetNamespace()
		server.Default()
		k.ProxyServer, k.WrittenProxyServer = server, manifestOf(u.Unstructured)
	case "HostedCluster.hypershift.openshift.io":
		return k.addToModel(objects.Decode[objects.HostedCluster](u.Unstructured))
	case "Route.route.openshift.io":
		return k.addToModel(objects.Decode[objects.Route](u.Unstructured))
	case "Service":
		return k.addToModel(objects.Decode[objects.LabelledService](u.Unstructured))
	case "NetworkAttachmentDefinition.k8s.cni.cncf.io":
		config, _, err := unstructured.NestedString(u.Object, "spec", "config")
		if err != nil {
			return fmt.Errorf("NetworkAttachmentDefinition %s: %w", u.GetName(), err)
		}
		k.Attachments[u.GetNamespace()+"/"+u.GetName()] = config
	default:
		return fmt.Errorf("%s %s: unsupported kind; expected Infra or ProxyServer, or a HostedCluster, Route, Service or NetworkAttachmentDefinition", u.GetKind(), u.GetName())
	}
	return nil
}

// addToModel adds an object to those of the model. It returns an error for an object that could not be decoded.
func (k *Known) addToModel(o objects.Object) error {
	if broken, ok := o.(*objects.Broken); ok {
		return fmt.Errorf("%s %s: %s", broken.Kind, broken.Name, broken.Error)
	}
	k.Objects.Add(o)
	return nil
}

// manifestOf returns the fields of an object that its author wrote: name, labels, annotations and spec.
func manifestOf(u *unstructured.Unstructured) *unstructured.Unstructured {
	clean := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "spec": u.Object["spec"]}}
	clean.SetNamespace(u.GetNamespace())
	clean.SetName(u.GetName())
	clean.SetLabels(u.GetLabels())
	annotations := u.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	clean.SetAnnotations(annotations)
	return clean
}
