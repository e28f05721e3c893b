package convert

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// ingress converts an Ingress to a VirtualIngress. Backends get matchLabels instead of a name if they have
// matchLabels already, or if their Service is in the files and is mirrored. The generated Ingress keeps the name,
// unless a backend has matchLabels and no name. API servers reject such an Ingress, so that it cannot exist; the
// generated Ingress has the VirtualIngress's suffix.
func (c *converter) ingress(o *object) {
	if o.GetKind() != virtualIngress && o.GetAPIVersion() != "networking.k8s.io/v1" {
		c.errs = append(c.errs, fmt.Errorf("%s: apiVersion %s: must be networking.k8s.io/v1; export the Ingress with 'kubectl get ingress.v1.networking.k8s.io -o "+
			"yaml'", o, o.GetAPIVersion()))
		return
	}
	u := clean(o)
	u.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	u.SetKind(virtualIngress)
	v, typed := &object{Unstructured: u, File: o.File, Document: o.Document}, &v1alpha1.VirtualIngress{}
	if o.GetKind() == virtualIngress { // already a VirtualIngress
		if err := decodeStrict(v, typed); err != nil {
			c.errs = append(c.errs, err)
			return
		}
		if c.gateway != nil {
			c.toRoutes(o, typed)
		}
		c.add(u, typed)
		return
	}
	labelled, refused := 0, ""
	for _, b := range backendsOf("spec", u.Object["spec"]) {
		if b.service["matchLabels"] != nil && b.service["name"] == nil && refused == "" {
			refused = b.field
		}
		labelled += c.backend(o, b.field, b.service)
	}
	if err := decodeStrict(v, typed); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	if labelled == 0 {
		c.warn(o, "", "no backend has matchLabels: replace changing Service names by matchLabels, or add the Services with their labels to the files")
	}
	switch {
	case c.gateway != nil:
		c.toRoutes(o, typed)
		c.warn(o, "", "apply the VirtualIngress, and delete this Ingress when its condition Accepted is True")
	case refused != "":
		c.warn(o, refused, "the backend has matchLabels but no name, which the API server rejects in an Ingress: the "+
			"generated Ingress is named %s",
			o.GetName()+*cmp.Or(typed.Spec.Suffix, new(v1alpha1.DefaultIngressSuffix)))
	case typed.Spec.Suffix == nil:
		typed.Spec.Suffix = new("")
		c.warn(o, "spec.suffix", "field is set to the empty string, so that the generated Ingress keeps the name: apply the VirtualIngress and delete this Ingress; "+
			"the controller then creates it again")
	}
	c.add(u, typed)
}

// add adds a VirtualIngress with the metadata of u and the spec of typed to the result.
func (c *converter) add(u *unstructured.Unstructured, typed *v1alpha1.VirtualIngress) {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed.Spec)
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("encoding VirtualIngress %s: %w", u.GetName(), err))
		return
	}
	u.Object["spec"] = spec
	c.result.Objects = append(c.result.Objects, u)
}

// A serviceField is the service of a backend, and the path of the field.
type serviceField struct {
	field   string
	service map[string]any
}

// backendsOf returns the services of all backends below a field, in the order of the fields' names.
func backendsOf(field string, value any) []serviceField {
	var all []serviceField
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			at := field + "." + key
			if service, ok := value[key].(map[string]any); ok && key == "service" {
				all = append(all, serviceField{at, service})
				continue
			}
			all = append(all, backendsOf(at, value[key])...)
		}
	case []any:
		for i, one := range value {
			all = append(all, backendsOf(fmt.Sprintf("%s[%d]", field, i), one)...)
		}
	}
	return all
}

// mirroredName matches the names of Services that the KubeVirt cloud controller mirrors: "a", followed by the UID of
// the hosted cluster's Service without dashes.
var mirroredName = regexp.MustCompile(`^a[0-9a-f]{31,32}$`)

// backend replaces the name of a backend's Service by labels, if they are known. It returns 1 if the backend has
// labels now, else 0.
func (c *converter) backend(o *object, field string, service map[string]any) int {
	name, _ := service["name"].(string)
	if service["matchLabels"] != nil {
		if name != "" {
			delete(service, "name")
			c.warn(o, field+".name", "%s is dropped: matchLabels select the Service", name)
		}
		return 1
	}
	s := c.services[serviceKey(c.namespace, o, name)]
	if s == nil {
		if mirroredName.MatchString(name) {
			c.warn(o, field+".name", "%s looks like a generated name of the KubeVirt cloud controller, which changes when the hosted cluster's Service is "+
				"created again; use matchLabels with the Service's labels", name)
		}
		return 0
	}
	labels := map[string]any{}
	for _, key := range model.MirroredLabels() {
		if value := s.GetLabels()[key]; value != "" {
			labels[key] = value
		}
	}
	if len(labels) < len(model.MirroredLabels()) {
		return 0 // not a mirrored Service, so its name does not change
	}
	delete(service, "name")
	service["matchLabels"] = labels
	return 1
}

// serviceKey returns "namespace/name" for a Service in the namespace of o, or in the default namespace if o has none.
func serviceKey(defaultNamespace string, o *object, name string) string {
	if namespace := o.GetNamespace(); namespace != "" {
		defaultNamespace = namespace
	}
	return defaultNamespace + "/" + name
}
