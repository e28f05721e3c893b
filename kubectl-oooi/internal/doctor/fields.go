package doctor

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// fields are fields of an object by JSON name, with the fields below each; nil selects the whole value. For a
// list they apply to each element.
type fields map[string]fields

// keptFields are the fields of each kind that the facts keep: those that checks read. A check therefore finds
// the same in a bundle as in the cluster, and a bundle contains nothing that no check reads. Free text is only
// kept where a check reads it: messages of conditions and of status, and the configuration that setup renders.
var keptFields = map[Kind]fields{
	infras:       withMetadata(fieldsOf[v1alpha1.Infra](), nil, nil),
	proxyServers: withMetadata(fieldsOf[v1alpha1.ProxyServer](), nil, nil),
	hostedClusters: withMetadata(merge(hostedClusterFields(), fields{
		"spec":   {"configuration": {"apiServer": {"servingCerts": {"namedCertificates": {"names": nil}}}}},
		"status": {"conditions": conditionFields},
	}), nil, []string{objects.AnnotationInfras}),
	routes:         withMetadata(fieldsOf[objects.Route](), nil, nil),
	endpointSlices: withMetadata(fieldsOf[objects.EndpointSlice](), []string{"kubernetes.io/service-name"}, nil),
	services: merge(
		withMetadata(fieldsOf[objects.LabelledService](), nil, []string{v1alpha1.AnnotationInfra}),
		// ProxyServers select Services by any of their labels, and NetworkPolicies select the pods behind Services.
		fields{"metadata": {"labels": nil, "ownerReferences": ownerFields}, "spec": {"selector": nil}},
	),
	nodePools: withMetadata(fields{"spec": {
		"clusterName": nil, "replicas": nil, "autoScaling": {"max": nil}, "management": {"upgradeType": nil}, "platform": {"kubevirt": {"additionalNetworks": {"name": nil}}},
	}}, nil, nil),
	machines: withMetadata(fields{
		"spec": {"networks": {"name": nil, "multus": {"networkName": nil}}, "domain": {"devices": {"interfaces": {"name": nil, "macAddress": nil}}}},
		"status": {
			"phase": nil, "nodeName": nil, "phaseTransitionTimestamps": {"phase": nil, "phaseTransitionTimestamp": nil},
			"interfaces": {"name": nil, "ipAddresses": nil, "mac": nil, "infoSource": nil},
		},
	}, []string{objects.LabelInfraID}, []string{v1alpha1.AnnotationDHCPAddresses}),
	attachments:    withMetadata(fields{"spec": {"config": nil}}, ourLabels, []string{v1alpha1.AnnotationInfra}),
	namespaces:     merge(withMetadata(fields{}, nil, nil), fields{"metadata": {"labels": nil}}), // NetworkPolicies select by them
	nodes:          withMetadata(fields{"spec": {"taints": {"key": nil, "value": nil, "effect": nil}}, "status": {"conditions": conditionFields}}, nil, nil),
	clusterDNS:     withMetadata(fields{"spec": {"baseDomain": nil}}, nil, nil),
	clusterIngress: withMetadata(fields{"spec": {"domain": nil, "appsDomain": nil}}, nil, nil),
	dnsOperators:   withMetadata(fields{"spec": {"servers": {"name": nil, "zones": nil, "forwardPlugin": {"upstreams": nil}}}}, nil, nil),
	crds:           withMetadata(fields{"spec": {"versions": {"name": nil, "served": nil}}, "status": {"conditions": conditionFields}}, nil, nil),
	configMaps:     withMetadata(fields{"data": {"Corefile": nil, rootCAKey: nil, setup.RememberedKey: nil, read.MultusKeys[0]: nil, read.MultusKeys[1]: nil}}, ourLabels, nil),
	statefulSets:   withMetadata(fields{"spec": {"replicas": nil}, "status": {"replicas": nil}}, ourLabels, []string{v1alpha1.AnnotationInfra}),
	// Of these, only differences from the rendered objects are checked.
	serviceAccounts:    withMetadata(fields{}, ourLabels, nil),
	disruptionBudgets:  withMetadata(fields{}, ourLabels, nil),
	deployments:        merge(withMetadata(fields{"status": {"availableReplicas": nil}}, ourLabels, nil), fields{"metadata": {"ownerReferences": ownerFields}}),
	networkPolicies:    withMetadata(fields{"spec": {"podSelector": nil, "policyTypes": nil, "ingress": nil, "egress": nil}}, ourLabels, nil),
	egressFirewalls:    withMetadata(fields{}, nil, nil),
	leaseObjects:       withMetadata(fields{"spec": {"holderIdentity": nil, "renewTime": nil}}, leases.Keys(), leases.Keys()),
	podEvents:          withMetadata(fields{"involvedObject": {"kind": nil, "namespace": nil, "name": nil, "uid": nil, "fieldPath": nil}, "reason": nil, "message": nil, "lastTimestamp": nil}, nil, nil),
	limitRanges:        withMetadata(fields{"spec": {"limits": nil}}, nil, nil),
	resourceQuotas:     withMetadata(fields{"status": {"hard": nil, "used": nil}}, nil, nil),
	validatingWebhooks: webhookFields,
	mutatingWebhooks:   webhookFields,
	podMetrics:         withMetadata(fields{"containers": {"name": nil, "usage": nil}}, nil, nil),
	pods: withMetadata(fields{
		"metadata": {"finalizers": nil},
		"spec": {
			"nodeName": nil, "serviceAccountName": nil,
			"containers":     {"name": nil, "image": nil, "command": nil, "resources": {"limits": nil, "requests": nil}},
			"initContainers": {"name": nil, "image": nil, "resources": {"limits": nil, "requests": nil}},
			"volumes":        {"configMap": {"name": nil}},
			// The pod of a probe copies these.
			"imagePullSecrets": nil, "nodeSelector": nil, "tolerations": nil,
		},
		"status": {"phase": nil, "podIP": nil, "podIPs": {"ip": nil}, "conditions": merge(conditionFields, fields{"lastTransitionTime": nil}), "containerStatuses": containerFields, "initContainerStatuses": containerFields},
	}, slices.Concat(ourLabels, []string{labelCreatedBy}), []string{"k8s.v1.cni.cncf.io/network-status", render.NetworksAnnotation}),
}

var (
	conditionFields = fields{"type": nil, "status": nil, "reason": nil, "message": nil}
	ownerFields     = fields{"apiVersion": nil, "kind": nil}
	webhookFields   = withMetadata(fields{"webhooks": {
		"name": nil, "failurePolicy": nil, "rules": nil, "namespaceSelector": nil, "objectSelector": nil, "matchConditions": {"name": nil},
		"clientConfig": {"service": {"namespace": nil, "name": nil}},
	}}, nil, nil)
	containerFields = fields{
		"name": nil, "imageID": nil, "ready": nil, "restartCount": nil,
		"state":     {"running": {"startedAt": nil}, "waiting": {"reason": nil, "message": nil}, "terminated": {"exitCode": nil, "reason": nil, "message": nil}},
		"lastState": {"terminated": {"exitCode": nil, "reason": nil, "message": nil, "finishedAt": nil}},
	}
	ourLabels = []string{labelPartOf, v1alpha1.LabelManagedBy, v1alpha1.LabelComponent, v1alpha1.LabelInfra, v1alpha1.LabelProxyServer}
)

const (
	// labelPartOf has the value partOf on our objects.
	labelPartOf = "app.kubernetes.io/part-of"
	partOf      = "oooi"
)

// withMetadata adds the fields of metadata that are kept of every object, and the given labels and annotations.
func withMetadata(list fields, labels, annotations []string) fields {
	named := func(keys []string) fields {
		keep := fields{}
		for _, key := range keys {
			keep[key] = nil
		}
		return keep
	}
	return merge(list, fields{"apiVersion": nil, "kind": nil, "metadata": {
		"name": nil, "namespace": nil, "uid": nil, "creationTimestamp": nil, "deletionTimestamp": nil, "generation": nil,
		"labels": named(labels), "annotations": named(annotations),
	}})
}

// merge returns the fields of both.
func merge(a, b fields) fields {
	both := maps.Clone(a)
	for name, nested := range b {
		if other, ok := both[name]; ok && nested != nil && other != nil {
			nested = merge(other, nested)
		}
		both[name] = nested
	}
	return both
}

// hostedClusterFields returns the fields of HostedClusters that the model reads, without the URL of an HTTP proxy, which may
// contain credentials.
func hostedClusterFields() fields {
	all := fieldsOf[objects.HostedCluster]()
	delete(all["spec"]["configuration"], "proxy")
	return all
}

// fieldsOf returns the fields of a type that objects are decoded into, without metadata.
func fieldsOf[T any]() fields {
	all := fieldsOfType(reflect.TypeFor[T]())
	delete(all, "metadata")
	return all
}

func fieldsOfType(t reflect.Type) fields {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return nil
	}
	all := fields{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "metadata" || name == "annotations": // see withMetadata
		case name == "" && f.Anonymous:
			maps.Copy(all, fieldsOfType(f.Type))
		case name != "" && name != "-":
			all[name] = fieldsOfType(f.Type)
		}
	}
	return all
}

// prune returns value reduced to the fields. A value of another type than expected keeps its type, so that
// decoding it fails as for the whole object; a string becomes empty, as it may be free text.
func (f fields) prune(value any) any {
	if f == nil {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for name, inner := range v {
			if nested, ok := f[name]; ok {
				all[name] = nested.prune(inner)
			}
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = f.prune(v[i])
		}
		return all
	case string:
		return ""
	default:
		return value
	}
}

// pruneObject returns an object reduced to the fields that are kept of its kind, nil if no check reads the
// kind.
func pruneObject(u *unstructured.Unstructured) *unstructured.Unstructured {
	kind := u.GroupVersionKind()
	kept, ok := keptFields[kind]
	if !ok {
		return nil
	}
	all, _ := kept.prune(u.Object).(map[string]any)
	k := &unstructured.Unstructured{Object: all}
	if sourceKinds[kind] {
		k.SetManagedFields(keptManagedFields(u))
	}
	switch kind {
	case leaseObjects:
		k.SetManagedFields(clientManagers(u))
	case configMaps:
		if text, ok, _ := unstructured.NestedString(all, "data", "Corefile"); ok {
			_ = unstructured.SetNestedField(all, forwardLines(text), "data", "Corefile") // data is a map
		}
		for _, key := range read.MultusKeys {
			if text, ok, _ := unstructured.NestedString(all, "data", key); ok { // the rest of Multus' configuration is not read
				_ = unstructured.SetNestedField(all, model.ParseIsolation(text).String(), "data", key) // data is a map
			}
		}
		if k.GetName() != rootCA {
			unstructured.RemoveNestedField(all, "data", rootCAKey)
		}
		if k.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
			unstructured.RemoveNestedField(all, "data", setup.RememberedKey)
		}
		text, _, _ := unstructured.NestedString(u.Object, "data", inventory.Key)
		if _, err := inventory.Parse(text); err != nil {
			_ = unstructured.SetNestedField(all, invalidInventory, "data", inventory.Key) // data is a map
		}
	case pods:
		containers, _, _ := unstructured.NestedFieldNoCopy(all, "spec", "containers")
		list, _ := containers.([]any)
		for _, c := range list {
			if c, ok := c.(map[string]any); ok {
				c["command"] = knownArguments(c["command"])
			}
		}
	}
	return k
}

// invalidInventory replaces an inventory that cannot be decoded. Others are not kept.
const invalidInventory = "cannot be decoded"

// knownArguments returns the arguments of a command that checks look for.
func knownArguments(command any) []any {
	all, _ := command.([]any)
	return slices.DeleteFunc(slices.Clone(all), func(a any) bool { return a != ownFlag })
}

// forwardLines returns the lines of a Corefile that begin a server block or have plugin forward. The rest of
// the cluster's Corefile may contain secrets.
func forwardLines(corefile string) string {
	var b strings.Builder
	for line := range strings.Lines(corefile) {
		words := strings.Fields(line)
		if _, ok := serverBlock(line); ok || len(words) > 0 && words[0] == forwardPlugin {
			b.WriteString(line)
		}
	}
	return b.String()
}
