package watch

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// resource is one kind of object that the model reads.
type resource struct {
	gvr    schema.GroupVersionResource
	kind   string
	decode func(*unstructured.Unstructured) objects.Object
	// scoped returns what to watch for a closed scope, so that permissions for it suffice: namespaces, or single
	// objects.
	scoped func(model.Scope) []objectKey
	// listed reports whether what scoped returns, if anything, suffices also for an open scope, so that no permission to read other
	// objects is needed.
	listed bool
	// minor, if set, reports whether a change requires no new snapshot. before is nil for an added object, now for a
	// deleted one. Every change is then passed on to the Store's subscribers.
	minor func(before, now objects.Object) bool
	// selector is a label selector; empty for all objects.
	selector string
	// optional resources are treated like ones that are not served if permission to read them is missing.
	optional bool
	// keep is the rule for objects that disappear from the API server; ruleFor returns the rule of a watch.
	keep keepRule
	// group, if set, returns the key under which table.grouped finds an object.
	group func(objects.Object) string
}

// objectKey identifies an object, or with an empty name all objects of a namespace.
type objectKey struct{ namespace, name string }

var (
	infraResource       = v1alpha1.SchemeGroupVersion.WithResource("infras")
	proxyServerResource = v1alpha1.SchemeGroupVersion.WithResource("proxyservers")
)

// resourcesOf returns the resources for a snapshot with the options.
func resourcesOf(options model.Options) []resource {
	network := resource{
		gvr: cni.Resource, kind: model.KindNetworkAttachment, decode: objects.DecodeNetworkAttachment, optional: true, keep: keepOutage,
		scoped: func(model.Scope) []objectKey { return nil },
	}
	list := []resource{network}
	if len(options.Leases) > 0 {
		list = append(list, leases(options.Leases))
	}
	switch {
	case options.Proxies:
		return slices.Concat(resources(objects.DecodeLabelledService), proxyResources(), list)
	case options.Backends:
		backends := proxyResources()[0]
		backends.optional = true // other names are served without them
		list = append(list, backends)
	}
	return append(resources(objects.Decode[objects.Service]), list...)
}

// leases returns the Leases of DHCP of Infras, or of all.
func leases(infras []string) resource {
	r := resource{
		gvr: objects.LeaseResource, kind: model.KindDHCPLease, decode: objects.DecodeDHCPLease, optional: true, keep: keepOutage,
		scoped:   func(model.Scope) []objectKey { return nil },
		selector: dhcplease.PoolLabel,
	}
	if slices.Contains(infras, model.AllLeases) {
		return r
	}
	var namespaces []objectKey
	pools := make([]string, len(infras))
	for i, infra := range keysOf(infras) {
		namespaces, pools[i] = append(namespaces, objectKey{namespace: infra.namespace}), dhcplease.Label(model.Pool(infras[i]))
	}
	r.scoped, r.listed = func(model.Scope) []objectKey { return slices.Clone(namespaces) }, true
	r.selector += " in (" + strings.Join(pools, ",") + ")"
	return r
}

// resources returns the resources to watch in an API server.
func (c Config) resources() []resource {
	list := resourcesOf(c.options())
	if !c.Networks {
		list = slices.DeleteFunc(list, func(r resource) bool { return r.gvr == cni.Resource })
	}
	if !c.Endpoints {
		list = slices.DeleteFunc(list, func(r resource) bool { return r.gvr == objects.EndpointSliceResource })
	}
	if c.Statuses {
		for i := range list {
			list[i] = list[i].withStatus()
		}
	}
	return list
}

// withStatus returns a resource with the status of Infras and ProxyServers. It returns other resources unchanged.
func (r resource) withStatus() resource {
	switch r.gvr {
	case infraResource:
		r.decode = decodeVersion[v1alpha1.Infra]
		r.minor = func(before, now objects.Object) bool {
			a, _ := before.(*v1alpha1.Infra)
			b, _ := now.(*v1alpha1.Infra)
			return sameSpec(before, now) && reflect.DeepEqual(a.Status.AppsIngress, b.Status.AppsIngress)
		}
	case proxyServerResource:
		r.decode, r.minor = decodeVersion[v1alpha1.ProxyServer], sameSpec
	}
	return r
}

// decodeVersion decodes an object with its resourceVersion and generation.
func decodeVersion[T any, P interface {
	*T
	metav1.Object
}](u *unstructured.Unstructured) objects.Object {
	o := objects.Decode[T, P](u)
	if p, ok := o.(P); ok {
		p.SetResourceVersion(u.GetResourceVersion())
		p.SetGeneration(u.GetGeneration())
	}
	return o
}

// sameSpec reports whether both are versions of an object that was decoded by decodeVersion, with the same spec.
func sameSpec(before, now objects.Object) bool {
	a, decoded := before.(metav1.Object)
	b, decodedNow := now.(metav1.Object)
	return decoded && decodedNow && a.GetGeneration() > 0 && a.GetGeneration() == b.GetGeneration() && a.GetUID() == b.GetUID()
}

func isBroken(o objects.Object) bool {
	_, broken := o.(*objects.Broken)
	return broken
}

// proxyResources returns the additional resources for ProxyServers.
func proxyResources() []resource {
	return []resource{
		{
			gvr: proxyServerResource, kind: "ProxyServer", decode: decodeProxyServer, keep: keepOutage,
			scoped: func(s model.Scope) []objectKey { return keysOf(s.ProxyServers) }, listed: true,
		},
		{
			gvr: objects.EndpointSliceResource, kind: "EndpointSlice", decode: objects.Decode[objects.EndpointSlice], keep: keepOutage,
			scoped: backendNamespaces,
			minor:  func(before, now objects.Object) bool { return !isBroken(before) && !isBroken(now) },
			group:  serviceOf,
		},
	}
}

// decodeProxyServer removes the status, which xdsd writes and does not read, so that its reports are no
// changes. It keeps the generation, which the reports refer to.
func decodeProxyServer(u *unstructured.Unstructured) objects.Object {
	o := objects.Decode[v1alpha1.ProxyServer](u)
	if p, ok := o.(*v1alpha1.ProxyServer); ok {
		p.Status, p.Generation = v1alpha1.ProxyServerStatus{}, u.GetGeneration()
	}
	return o
}

// serviceOf returns the Service of an EndpointSlice, "" for a broken object.
func serviceOf(o objects.Object) string {
	if slice, ok := o.(*objects.EndpointSlice); ok {
		return slice.Service()
	}
	return ""
}

// resources returns the resources of every snapshot, the ones with the most important errors first.
func resources(service func(*unstructured.Unstructured) objects.Object) []resource {
	return []resource{
		{
			gvr: objects.HostedClusterResource, kind: "HostedCluster", decode: objects.Decode[objects.HostedCluster], keep: keepUnannounced,
			scoped: func(s model.Scope) []objectKey { return keysOf(s.HostedClusters) },
		},
		{
			gvr: infraResource, kind: "Infra", decode: objects.Decode[v1alpha1.Infra], keep: keepOutage,
			scoped: func(s model.Scope) []objectKey { return keysOf(s.Infras) },
		},
		{
			gvr: objects.RouteResource, kind: "Route", decode: objects.Decode[objects.Route], keep: keepOutage,
			scoped: controlPlaneNamespaces,
		},
		{
			gvr: objects.ServiceResource, kind: "Service", decode: service, keep: keepOutage,
			scoped: func(s model.Scope) []objectKey {
				keys := backendNamespaces(s)
				for _, infra := range keysOf(s.Infras) {
					keys = append(keys, objectKey{namespace: infra.namespace})
				}
				for _, namespace := range s.ServiceNamespaces {
					keys = append(keys, objectKey{namespace: namespace})
				}
				return keys
			},
		},
	}
}
