package site

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// redacted are fields that may contain secrets, or that are not used: environment variables, URLs of HTTP proxies, user data of
// VMs, and clients' bookkeeping. A path through a list applies to each element.
var redacted = [][]string{
	{"metadata", "managedFields"},
	{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"},
	{"spec", "containers", "env"}, {"spec", "containers", "envFrom"}, {"spec", "initContainers", "env"}, {"spec", "initContainers", "envFrom"},
	{"spec", "template", "spec", "containers", "env"}, {"spec", "template", "spec", "containers", "envFrom"},
	{"spec", "configuration", "proxy"},
	{"spec", "volumes", "cloudInitNoCloud"}, {"spec", "volumes", "cloudInitConfigDrive"},
	{"spec", "accessCredentials"},
	{"binaryData"},
}

// dataKeys are the keys of ConfigMaps that are kept. Other keys may have secrets.
var dataKeys = append([]string{"Corefile"}, read.MultusKeys...)

// redact removes fields that may contain secrets from an object.
func redact(u *unstructured.Unstructured) {
	proxy, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "configuration", "proxy", "httpsProxy")
	for _, path := range redacted {
		remove(u.Object, path)
	}
	if proxy != nil && proxy != "" { // keep whether one is set; see objects.Configured
		_ = unstructured.SetNestedField(u.Object, true, "spec", "configuration", "proxy", "httpsProxy") // the fields above it exist
	}
	if u.GroupVersionKind() == ConfigMaps {
		data, _, _ := unstructured.NestedMap(u.Object, "data")
		for key := range data {
			if !slices.Contains(dataKeys, key) {
				delete(data, key)
			}
		}
		for _, key := range read.MultusKeys {
			if text, ok := data[key].(string); ok { // the rest of Multus' configuration may contain credentials
				data[key] = model.ParseIsolation(text).String()
			}
		}
		u.Object["data"] = data
	}
}

// reduce returns a NetworkAttachmentDefinition without fields of other programs' networks, which may contain secrets.
func reduce(u *unstructured.Unstructured, networks map[string]bool) *unstructured.Unstructured {
	if networks[u.GetNamespace()+"/"+u.GetName()] || u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
		return u
	}
	config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
	u = u.DeepCopy()
	u.Object["spec"] = map[string]any{"config": cni.Reduce(config)}
	return u
}

// remove removes a field, in each element of lists on its path.
func remove(value any, path []string) {
	switch v := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
			return
		}
		remove(v[path[0]], path[1:])
	case []any:
		for _, element := range v {
			remove(element, path)
		}
	}
}
