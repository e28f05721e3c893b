package convert

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// ingress turns an Ingress into a VirtualIngress, all of whose backends that are known by labels
// have these: those that have them already, and those whose Service is among the files and was
// mirrored. The Ingress that comes of it has the name of this one, if this one can be in a cluster; of one
// that the API server refuses it is NAME-generated, as those expect who have written one.
func (c *converter) ingress(o *object) {
	u := clean(o)
	u.SetAPIVersion(v1alpha1.SchemeGroupVersion.String())
	u.SetKind("VirtualIngress")
	v := &object{Unstructured: u, File: o.File, Document: o.Document}
	if o.GetKind() == u.GetKind() { // it is one already
		if err := strict(v, &v1alpha1.VirtualIngress{}); err != nil {
			c.errs = append(c.errs, err)
		}
		c.result.Objects = append(c.result.Objects, u)
		return
	}
	found, refused := 0, ""
	for _, b := range backendsOf("spec", u.Object["spec"]) {
		if b.service["matchLabels"] != nil && b.service["name"] == nil && refused == "" {
			refused = b.field
		}
		found += c.backend(o, b.field, b.service)
	}
	typed := &v1alpha1.VirtualIngress{}
	if err := strict(v, typed); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	if found == 0 {
		c.warn(o, "", "no backend has matchLabels: put them in the place of the name that changes, or give the Service with its labels as well")
	}
	switch {
	case refused != "":
		c.warn(o, refused, "has matchLabels and no name, so that no API server has ever taken this Ingress: the one that is made of the VirtualIngress is called %s",
			o.GetName()+*cmp.Or(typed.Spec.Suffix, new(v1alpha1.DefaultIngressSuffix)))
	case typed.Spec.Suffix == nil:
		fields{u.Object}.set("", "spec", "suffix")
		c.warn(o, "spec.suffix", "is empty, so that the Ingress keeps its name: apply the VirtualIngress, delete this Ingress, and it is made anew within a moment")
	}
	c.result.Objects = append(c.result.Objects, u)
}

// serviceField is a Service that an Ingress names, and the field that does.
type serviceField struct {
	field   string
	service map[string]any
}

// backendsOf are the Services that are named below a field.
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

// mirroredName is what the KubeVirt cloud controller calls a Service: an "a" and the uid of the
// guest's.
var mirroredName = regexp.MustCompile(`^a[0-9a-f]{31,32}$`)

// backend puts labels in the place of a Service's name, where they are known, and returns how many
// backends have labels now: 1 or 0.
func (c *converter) backend(o *object, field string, service map[string]any) int {
	name, _ := service["name"].(string)
	if service["matchLabels"] != nil {
		if name != "" {
			delete(service, "name")
			c.warn(o, field+".name", "%s is left out: matchLabels say which Service it is", name)
		}
		return 1
	}
	s := c.services[namespaced(c.namespace, o, name)]
	if s == nil {
		if mirroredName.MatchString(name) {
			c.warn(o, field+".name", "%s is a name as the KubeVirt cloud controller makes them, which changes when the guest's Service is made anew: put its labels in matchLabels", name)
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
		return 0 // one that somebody has named
	}
	delete(service, "name")
	service["matchLabels"] = labels
	return 1
}

// keepService remembers a Service of the files, for what its labels tell of Ingresses.
func (c *converter) keepService(o *object) {
	c.services[namespaced(c.namespace, o, o.GetName())] = o
}

// namespaced is the name of an object beside another one.
func namespaced(otherwise string, beside *object, name string) string {
	if namespace := beside.GetNamespace(); namespace != "" {
		otherwise = namespace
	}
	return otherwise + "/" + name
}
