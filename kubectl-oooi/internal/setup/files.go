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

// Known is what setup knows: out of files first, then out of the cluster.
type Known struct {
	Infra *v1alpha1.Infra
	// Written is the Infra without defaults; nil where a ProxyServer is alone.
	Written *unstructured.Unstructured
	// ProxyServer is the Infra's; nil for none yet.
	ProxyServer        *v1alpha1.ProxyServer
	WrittenProxyServer *unstructured.Unstructured
	// Kept are the kinds of those two that are in the cluster and in no file: they stay as they
	// are, and whoever has set their fields keeps them.
	Kept []string
	// Objects are all others that names and ports are computed from.
	Objects model.Objects
	// Attachments are CNI configurations, by namespace and name.
	Attachments map[string]string
	// MakeNetwork is the virtual machines' network that is to be made; nil for none.
	MakeNetwork *render.MachineNetwork
	// ownNetwork: setup has made the one that there is.
	ownNetwork bool
	// Elsewhere says where there is something by the name of the network that is missing.
	Elsewhere string
	// PodSecurity is the level that the Infra's namespace enforces; empty for none.
	PodSecurity string
	// ControlPlane reports whether the control plane's namespace is there.
	ControlPlane bool
	OpenShift    bool
	// Management are the domains of the management cluster; empty where it is no OpenShift.
	Management []string
	// holders are the addresses that the Infra's workloads have before the change.
	holders []held
	// VirtualIngress is to be there as well, once in the cluster.
	VirtualIngress bool
}

// ReadFiles reads YAML or JSON documents out of files; "-" is in. Objects without a namespace are
// in the given one. Flags may describe the Infra that is in none of the files.
func ReadFiles(names []string, in io.Reader, namespace string, described *Description) (*Known, error) {
	k := &Known{Attachments: map[string]string{}}
	all, err := documents.Read(names, in)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is ours
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
		err := k.standAlone()
		return k, err
	}
	return k, nil
}

// add takes one object.
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
		k.Infra, k.Written = infra, written(u.Unstructured)
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
		k.ProxyServer, k.WrittenProxyServer = server, written(u.Unstructured)
	case "HostedCluster.hypershift.openshift.io":
		return k.take(objects.Decode[objects.HostedCluster](u.Unstructured))
	case "Route.route.openshift.io":
		return k.take(objects.Decode[objects.Route](u.Unstructured))
	case "Service":
		return k.take(objects.Decode[objects.LabelledService](u.Unstructured))
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

// take keeps an object for the model.
func (k *Known) take(o objects.Object) error {
	if broken, ok := o.(*objects.Broken); ok {
		return fmt.Errorf("%s %s: %s", broken.Kind, broken.Name, broken.Error)
	}
	k.Objects.Add(o)
	return nil
}

// written is an object without what an API server has added, if it comes out of one.
func written(u *unstructured.Unstructured) *unstructured.Unstructured {
	clean := &unstructured.Unstructured{Object: map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "spec": u.Object["spec"]}}
	clean.SetNamespace(u.GetNamespace())
	clean.SetName(u.GetName())
	clean.SetLabels(u.GetLabels())
	annotations := u.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	clean.SetAnnotations(annotations)
	return clean
}
