package setup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// Known is what setup knows: out of files first, then out of the cluster.
type Known struct {
	Infra *v1alpha1.Infra
	// Written is the Infra without defaults.
	Written *unstructured.Unstructured
	// ProxyServer is the Infra's; nil for none yet.
	ProxyServer        *v1alpha1.ProxyServer
	WrittenProxyServer *unstructured.Unstructured
	// Objects are all others that names and ports are computed from.
	Objects model.Objects
	// Attachments are CNI configurations, by namespace and name.
	Attachments map[string]string
	// ControlPlane reports whether the control plane's namespace is there.
	ControlPlane bool
	OpenShift    bool
}

// ReadFiles reads YAML or JSON documents out of files; "-" is in. Objects without a namespace are
// in the given one.
func ReadFiles(names []string, in io.Reader, namespace string) (*Known, error) {
	k := &Known{Attachments: map[string]string{}}
	for _, name := range names {
		var data []byte
		var err error
		if name == "-" {
			data, err = io.ReadAll(in)
		} else {
			data, err = os.ReadFile(filepath.Clean(name))
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for i := 1; ; i++ {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err == nil && len(bytes.TrimSpace(document)) > 0 {
				err = k.add(document, namespace)
			}
			if err != nil {
				return nil, fmt.Errorf("%s, document %d: %w", name, i, err)
			}
		}
	}
	if k.Infra == nil {
		return nil, errors.New("no Infra in the files: -f names a file with one")
	}
	return k, nil
}

// add takes one document.
func (k *Known) add(document []byte, namespace string) error {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(document, &u.Object); err != nil {
		return fmt.Errorf("it is no YAML: %w", err)
	}
	if len(u.Object) == 0 {
		return nil // comments
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(namespace)
	}
	switch kind := u.GroupVersionKind().GroupKind(); kind.String() {
	case "Infra." + v1alpha1.GroupName:
		infra := &v1alpha1.Infra{}
		if err := strict(document, infra); err != nil {
			return fmt.Errorf("in Infra %s: %w", u.GetName(), err)
		}
		if k.Infra != nil {
			return fmt.Errorf("a second Infra, %s: one at a time", u.GetName())
		}
		if infra.Name == "" {
			return errors.New("the Infra has no metadata.name")
		}
		infra.Namespace = u.GetNamespace()
		infra.Default()
		k.Infra, k.Written = infra, written(u)
	case "ProxyServer." + v1alpha1.GroupName:
		server := &v1alpha1.ProxyServer{}
		if err := strict(document, server); err != nil {
			return fmt.Errorf("ProxyServer %s: %w", u.GetName(), err)
		}
		if k.ProxyServer != nil {
			return fmt.Errorf("a second ProxyServer, %s: one at a time", u.GetName())
		}
		server.Namespace = u.GetNamespace()
		server.Default()
		k.ProxyServer, k.WrittenProxyServer = server, written(u)
	case "HostedCluster.hypershift.openshift.io":
		return k.take(objects.Decode[objects.HostedCluster](u))
	case "Route.route.openshift.io":
		return k.take(objects.Decode[objects.Route](u))
	case "Service":
		return k.take(objects.Decode[objects.Service](u))
	case "NetworkAttachmentDefinition.k8s.cni.cncf.io":
		config, _, err := unstructured.NestedString(u.Object, "spec", "config")
		if err != nil {
			return fmt.Errorf("NetworkAttachmentDefinition %s: %w", u.GetName(), err)
		}
		k.Attachments[u.GetNamespace()+"/"+u.GetName()] = config
	default:
		return fmt.Errorf("%s %s: setup knows nothing to do with it", u.GetKind(), u.GetName())
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

// strict decodes a document of which every field has to be known, as it is written.
func strict(document []byte, into any) error {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return fmt.Errorf("it is no YAML: %w", err)
	}
	unknown, err := sigsjson.UnmarshalStrict(data, into)
	return errors.Join(append(unknown, err)...)
}
