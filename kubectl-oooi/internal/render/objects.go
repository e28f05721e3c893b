package render

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Names that several files speak of.
const (
	// SystemNamespace is where control runs.
	SystemNamespace = "oooi-system"
	// ControlName is the name of control's workload and ServiceAccount.
	ControlName = "oooi-control"
	// partOf is the value of app.kubernetes.io/part-of on everything that is ours.
	partOf = "oooi"
)

// longestName leaves room for what the StatefulSet controller adds to a label: a dash and a hash.
const longestName = 63 - 11

// Objects returns the Infra and everything that serves it, in an order in which they can be
// applied.
func Objects(in *Input) ([]*unstructured.Unstructured, error) {
	if len(in.name("proxy")) > longestName {
		return nil, fmt.Errorf("metadata.name: %s is longer than %d characters, and names of pods are made of it", in.Infra.Name, longestName-len("-proxy"))
	}
	var list []runtime.Object
	if !in.alone() {
		list = append(list, in.Written)
	}
	if in.OwnAttachment {
		list = append(list, in.machineAttachment())
	}
	spec := &in.Infra.Spec
	for _, c := range []struct {
		enabled bool
		make    func(*Input) ([]runtime.Object, error)
	}{
		{true, controlRights},
		{spec.InfraComponents.Proxy.IsEnabled(), proxy},
		{spec.InfraComponents.DNS.IsEnabled(), dns},
		{spec.InfraComponents.DHCP.IsEnabled(), dhcp},
		{true, networkPolicies},
	} {
		if !c.enabled {
			continue
		}
		more, err := c.make(in)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return finish(in, list)
}

// finish labels the objects, and leaves out what is not ours to say.
func finish(in *Input, list []runtime.Object) ([]*unstructured.Unstructured, error) {
	all := make([]*unstructured.Unstructured, 0, len(list))
	for _, o := range list {
		u, err := toUnstructured(o)
		if err != nil {
			return nil, err
		}
		labels := u.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
		u.SetLabels(labels)
		if u.GetKind() != "Infra" && u.GetKind() != "ProxyServer" {
			// An owner in another namespace has no label that is long enough.
			annotations := u.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[v1alpha1.AnnotationInfra] = in.key()
			u.SetAnnotations(annotations)
		}
		all = append(all, u)
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return order(a) - order(b) })
	return all, nil
}

// order is such that nothing comes before what it needs.
func order(u *unstructured.Unstructured) int {
	kinds := []string{
		"Namespace", "CustomResourceDefinition", "SecurityContextConstraints", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"Infra", "ProxyServer", "NetworkAttachmentDefinition", "Lease", "ConfigMap", "Service", "NetworkPolicy", "PodDisruptionBudget",
		"Deployment", "StatefulSet",
	}
	return slices.Index(kinds, u.GetKind())
}

func toUnstructured(o runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u, nil
	}
	if o.GetObjectKind().GroupVersionKind().Empty() {
		kinds, _, err := clientgoscheme.Scheme.ObjectKinds(o)
		if err != nil {
			return nil, fmt.Errorf("naming the kind of %T: %w", o, err)
		}
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("converting a %T: %w", o, err)
	}
	delete(fields, "status")
	u := &unstructured.Unstructured{Object: fields}
	unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(fields, "spec", "template", "metadata", "creationTimestamp")
	return u, nil
}

// meta is that of an object in the Infra's namespace.
func (in *Input) meta(component, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: in.Infra.Namespace, Name: name, Labels: in.labels(component)}
}

// labels are those by which control finds the pods of a component.
func (in *Input) labels(component string) map[string]string {
	labels := map[string]string{
		"app.kubernetes.io/part-of": partOf,
		v1alpha1.LabelComponent:     component,
	}
	if !in.alone() {
		labels[v1alpha1.LabelInfra] = in.Infra.Name
	}
	if component == v1alpha1.ComponentProxy {
		labels[v1alpha1.LabelProxyServer] = in.proxyServerName()
	}
	return labels
}

// proxyServerName is that of the ProxyServer that the Infra's proxy serves.
func (in *Input) proxyServerName() string {
	if in.ProxyServer != nil {
		return in.ProxyServer.GetName()
	}
	return in.Infra.Name
}

func configMap(meta metav1.ObjectMeta, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta, Data: data}
}

func service(meta metav1.ObjectMeta, selector map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack), Selector: selector, Ports: ports,
	}}
}

var nadKind = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}

func networkAttachmentDefinition(meta metav1.ObjectMeta, config string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"config": config}}}
	u.SetGroupVersionKind(nadKind)
	u.SetNamespace(meta.Namespace)
	u.SetName(meta.Name)
	u.SetLabels(meta.Labels)
	return u
}

// suffix makes an address part of a name.
func suffix(address string) string { return strings.NewReplacer(".", "-", ":", "-").Replace(address) }
