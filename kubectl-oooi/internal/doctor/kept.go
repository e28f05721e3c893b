package doctor

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
)

// fields are the fields of a value that checks read, by their JSON names; nil is the whole value. Of a list they are
// those of each element.
type fields map[string]fields

// kept are the fields of each kind that the facts have. Checks see nothing else, so that they find the same in a bundle
// as in the cluster, and a bundle has nothing that no check reads. The value of a string that is free text is kept only
// if a check reads it: status conditions and messages, and the configurations that setup renders.
var kept = map[Kind]fields{
	infras:         about(fieldsOf[v1alpha1.Infra](), nil, nil),
	proxyServers:   about(fieldsOf[v1alpha1.ProxyServer](), nil, nil),
	hostedClusters: about(joined(fieldsOf[objects.HostedCluster](), fields{"status": {"conditions": conditionFields}}), nil, []string{objects.AnnotationInfras}),
	routes:         about(fieldsOf[objects.Route](), nil, nil),
	endpointSlices: about(fieldsOf[objects.EndpointSlice](), []string{"kubernetes.io/service-name"}, nil),
	services: joined(
		about(fieldsOf[objects.LabelledService](), nil, []string{v1alpha1.AnnotationInfra}),
		// ProxyServers select Services by any of their labels.
		fields{"metadata": {"labels": nil, "ownerReferences": ownerFields}, "spec": {"ports": {"protocol": nil}}},
	),
	nodePools: about(fields{"spec": {
		"clusterName": nil, "replicas": nil, "autoScaling": {"max": nil}, "management": {"upgradeType": nil}, "platform": {"kubevirt": {"additionalNetworks": {"name": nil}}},
	}}, nil, nil),
	machines: about(fields{
		"spec":   {"networks": {"name": nil, "multus": {"networkName": nil}}},
		"status": {"phase": nil, "phaseTransitionTimestamps": {"phase": nil, "phaseTransitionTimestamp": nil}, "interfaces": {"name": nil, "ipAddresses": nil}},
	}, []string{labelInfraID}, []string{v1alpha1.AnnotationDHCPAddresses}),
	attachments:  about(fields{"spec": {"config": nil}}, ourLabels, nil),
	dnsOperators: about(fields{"spec": {"servers": {"name": nil, "zones": nil, "forwardPlugin": {"upstreams": nil}}}}, nil, nil),
	crds:         about(fields{"spec": {"versions": {"name": nil, "served": nil}}, "status": {"conditions": conditionFields}}, nil, nil),
	configMaps:   about(fields{"data": {"Corefile": nil, "config.yml": nil}}, ourLabels, nil),
	statefulSets: about(fields{
		"spec": {"replicas": nil, "template": {
			"metadata": {"annotations": {annotationConfig: nil}},
			"spec":     {"initContainers": commandFields, "containers": commandFields},
		}},
		"status": {"replicas": nil},
	}, ourLabels, []string{v1alpha1.AnnotationInfra}),
	deployments:     joined(about(fields{"status": {"availableReplicas": nil}}, ourLabels, nil), fields{"metadata": {"ownerReferences": ownerFields}}),
	networkPolicies: about(fields{"spec": {"podSelector": nil, "policyTypes": nil, "ingress": nil}}, nil, nil),
	leaseObjects:    about(fields{"spec": {"holderIdentity": nil, "renewTime": nil}}, leases.Marks(), leases.Marks()),
	refusals:        about(fields{"involvedObject": {"kind": nil, "namespace": nil, "name": nil, "uid": nil}, "reason": nil, "message": nil, "lastTimestamp": nil}, nil, nil),
	usages:          about(fields{"containers": {"name": nil, "usage": nil}}, nil, nil),
	pods: about(fields{
		"spec": {
			"nodeName":   nil,
			"containers": {"name": nil, "image": nil, "command": nil, "resources": {"limits": nil}},
			// A probe's pod has these.
			"imagePullSecrets": nil, "nodeSelector": nil, "tolerations": nil,
		},
		"status": {"phase": nil, "podIP": nil, "conditions": conditionFields, "containerStatuses": containerFields, "initContainerStatuses": containerFields},
	}, ourLabels, []string{"k8s.v1.cni.cncf.io/network-status"}),
}

var (
	conditionFields = fields{"type": nil, "status": nil, "reason": nil, "message": nil}
	commandFields   = fields{"name": nil, "command": nil, "args": nil}
	ownerFields     = fields{"apiVersion": nil, "kind": nil}
	containerFields = fields{
		"name": nil, "imageID": nil, "ready": nil, "restartCount": nil,
		"state":     {"waiting": {"reason": nil, "message": nil}, "terminated": {"exitCode": nil, "reason": nil, "message": nil}},
		"lastState": {"terminated": {"exitCode": nil, "reason": nil, "message": nil, "finishedAt": nil}},
	}
	ourLabels = []string{labelPartOf, v1alpha1.LabelManagedBy, v1alpha1.LabelComponent, v1alpha1.LabelInfra, v1alpha1.LabelProxyServer}
)

const (
	// labelPartOf has the value partOf on what is ours.
	labelPartOf = "app.kubernetes.io/part-of"
	partOf      = "oooi"
	// labelInfraID is HyperShift's, by which machines belong to a hosted cluster.
	labelInfraID = "hypershift.openshift.io/infra-id"
	// annotationConfig has a pod's configuration as setup rendered it, as a hash.
	annotationConfig = v1alpha1.GroupName + "/config"
)

// about adds what is kept of the metadata of every object, and these labels and annotations.
func about(of fields, labels, annotations []string) fields {
	named := func(keys []string) fields {
		list := fields{}
		for _, key := range keys {
			list[key] = nil
		}
		return list
	}
	return joined(of, fields{"apiVersion": nil, "kind": nil, "metadata": {
		"name": nil, "namespace": nil, "uid": nil, "creationTimestamp": nil, "deletionTimestamp": nil, "generation": nil,
		"labels": named(labels), "annotations": named(annotations),
	}})
}

// joined are the fields of both.
func joined(a, b fields) fields {
	both := maps.Clone(a)
	for name, of := range b {
		if other, ok := both[name]; ok && of != nil && other != nil {
			of = joined(other, of)
		}
		both[name] = of
	}
	return both
}

// fieldsOf are the fields of a type that objects are decoded to, but for their metadata.
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
		case name == "metadata" || name == "annotations": // see about
		case name == "" && f.Anonymous:
			maps.Copy(all, fieldsOfType(f.Type))
		case name != "" && name != "-":
			all[name] = fieldsOfType(f.Type)
		}
	}
	return all
}

// of is what is kept of a value. One of another shape stays one, since what cannot be decoded is a finding.
func (f fields) of(value any) any {
	if f == nil {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for name, inner := range v {
			if of, ok := f[name]; ok {
				all[name] = of.of(inner)
			}
		}
		return all
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = f.of(v[i])
		}
		return all
	case string:
		return ""
	default:
		return value
	}
}

// keep is what facts have of an object; nil for one of a kind that no check reads.
func keep(u *unstructured.Unstructured) *unstructured.Unstructured {
	kind := u.GroupVersionKind()
	of, ok := kept[kind]
	if !ok {
		return nil
	}
	all, _ := of.of(u.Object).(map[string]any)
	k := &unstructured.Unstructured{Object: all}
	if written[kind.Kind] {
		k.SetManagedFields(writersOf(u))
	}
	switch {
	case kind == configMaps && k.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy:
		if text, ok, _ := unstructured.NestedString(all, "data", "Corefile"); ok {
			_ = unstructured.SetNestedField(all, forwards(text), "data", "Corefile") // data is a map
		}
		unstructured.RemoveNestedField(all, "data", "config.yml")
	case kind == statefulSets: // arguments are free text, of which a digest is enough to compare
		for digest, c := range commandDigests(all) {
			c["command"] = []any{digest}
			delete(c, "args")
		}
	case kind == pods:
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

// knownArguments are those of a command that a check looks for.
func knownArguments(command any) []any {
	all, _ := command.([]any)
	return slices.DeleteFunc(slices.Clone(all), func(a any) bool { return a != ownFlag })
}

// forwards are the lines of somebody else's Corefile that say what is forwarded where.
func forwards(corefile string) string {
	var b strings.Builder
	for line := range strings.Lines(corefile) {
		words := strings.Fields(line)
		if _, ok := serverBlock(line); ok || len(words) > 0 && words[0] == forwardPlugin {
			b.WriteString(line)
		}
	}
	return b.String()
}
