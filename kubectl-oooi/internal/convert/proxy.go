package convert

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// wrongTargets are targets in samples of the operator that HyperShift does not create.
var wrongTargets = []string{
	"ignition:22623", "ignition-server:22623", "konnectivity:8132", "konnectivity-server:8132", "konnectivity-server:8090", "oauth-openshift:443",
}

// isControlPlane reports whether a Service has the name of a Service of hosted control planes.
func isControlPlane(service string) bool {
	return slices.Contains([]string{"kube-apiserver", "oauth-openshift", "ignition-server", "ignition-server-proxy", "konnectivity-server"}, service)
}

// proxyServer returns a ProxyServer with the backends that the routes of the Infra do not include. It returns nil if
// there are none, because setup then creates the ProxyServer.
func (c *converter) proxyServer(s *infraGroup, infra *unstructured.Unstructured, typed *v1alpha1.Infra, old *v1alpha1.ProxyServer) *unstructured.Unstructured {
	proxy := typed.Spec.InfraComponents.Proxy
	if !proxy.IsEnabled() {
		c.warn(s.proxy, "", "dropped: Infra %s has no proxy", s.name)
		return nil
	}
	u := clean(s.proxy)
	f := fields{u.Object}
	if old.Spec.InfraRef == nil { // the operator created it, with its default images; those of the Infra are used
		f.remove("spec", "managerImage")
		f.remove("spec", "proxyImage")
		if proxy.ProxyImage != "" {
			c.warnDiffers(s.proxy, "spec.proxyImage", old.Spec.ProxyImage, "spec.infraComponents.proxy.proxyImage", proxy.ProxyImage)
		}
	}
	c.cleanAddress(s.proxy, f, typed.Spec.NetworkConfig.CIDR, "spec", "networkConfig", "serverIP")
	c.cleanProxyServer(s.proxy, u)
	address, _ := f.text("spec", "networkConfig", "serverIP")
	c.warnDiffers(s.proxy, "spec.networkConfig.serverIP", address, "spec.infraComponents.proxy.serverIP", proxy.ServerIP)
	c.compareNetwork(s, s.proxy, typed, attachment{old.Spec.NetworkConfig.NetworkAttachmentName, old.Spec.NetworkConfig.NetworkAttachmentNamespace})
	remaining := c.remainingBackends(s, typed, u)
	if old.Spec.InfraRef != nil { // it is an object of oooi, not of the operator
		f.set(remaining, "spec", "backends")
		if len(remaining) == 0 {
			f.remove("spec", "backends")
		}
		return u
	}
	if level := old.Spec.LogLevel; level != "" && level != v1alpha1.DefaultLogLevel {
		// The log level of the Infra takes precedence over that of the ProxyServer.
		fields{infra.Object}.set(string(level), "spec", "infraComponents", "proxy", "logLevel")
	}
	if len(remaining) == 0 {
		return nil
	}
	u.Object["spec"] = map[string]any{
		"infraRef":      map[string]any{"name": s.name},
		"networkConfig": map[string]any{"serverIP": proxy.ServerIP},
		"backends":      remaining,
	}
	u.SetName(s.name) // the name that setup uses; the operator's ProxyServer is deleted
	return u
}

// standaloneProxyServer converts a ProxyServer without an Infra in the files.
func (c *converter) standaloneProxyServer(o *object) {
	if err := decodeStrict(o, &v1alpha1.ProxyServer{}); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	u := clean(o)
	c.cleanProxyServer(o, u)
	f := fields{u.Object}
	c.addPrefixLength(o, f)
	var remaining []any
	backends, _, _ := unstructured.NestedSlice(u.Object, "spec", "backends")
	for _, one := range backends {
		b, _ := one.(map[string]any)
		name, _ := fields{b}.text("name")
		if service, _ := (fields{b}).text("targetService"); isIP(service) {
			c.warn(o, "spec.backends "+name, "dropped: the target %s is an address, not a Service", service)
			continue
		}
		remaining = append(remaining, b)
	}
	_, named := f.text("spec", "infraRef", "name")
	switch {
	case len(remaining) > 0:
		f.set(remaining, "spec", "backends")
	case named:
		f.remove("spec", "backends")
	default:
		c.fail(o, "spec.backends: no backend can be converted, and no Infra provides routes")
		return
	}
	c.result.Objects = append(c.result.Objects, u)
}

// addPrefixLength adds a prefix length to the address of a ProxyServer without an Infra; for others, the network of
// the Infra defines the prefix length.
func (c *converter) addPrefixLength(o *object, f fields) {
	path := []string{"spec", "networkConfig", "serverIP"}
	if _, named := f.text("spec", "infraRef", "name"); named {
		return
	}
	if text, _ := f.text(path...); isIP(text) && !strings.Contains(text, ":") {
		f.set(text+"/24", path...)
		c.warn(o, strings.Join(path, "."), "%s is changed to %s/24, which the operator assumed; correct the prefix length if it differs", text, text)
	}
}

// cleanProxyServer removes the fields of a ProxyServer that oooi does not use, and corrects the targets of its
// backends.
func (c *converter) cleanProxyServer(o *object, u *unstructured.Unstructured) {
	f := fields{u.Object}
	c.cleanAttachment(o, f, "spec.networkConfig.networkAttachmentName")
	c.cleanImages(o, f, "spec")
	for _, ignored := range []struct {
		field       string
		defaultPort int32
		why         string
	}{
		{"port", v1alpha1.DefaultProxyPort, "the proxy listens on the ports of its routes"},
		{"xdsPort", v1alpha1.DefaultXDSPort, "xdsd and Envoy use a Unix socket"},
	} {
		if port, ok, _ := unstructured.NestedInt64(u.Object, "spec", ignored.field); ok {
			f.remove("spec", ignored.field)
			if port != int64(ignored.defaultPort) {
				c.warn(o, "spec."+ignored.field, "%d is dropped: %s", port, ignored.why)
			}
		}
	}
	f.prune("spec")
	backends, ok, _ := unstructured.NestedSlice(u.Object, "spec", "backends")
	if !ok {
		return
	}
	kept := []any{}
	for i := range backends {
		if b, ok := backends[i].(map[string]any); ok {
			c.cleanBackend(o, fmt.Sprintf("spec.backends[%d]", i), fields{b})
			kept = append(kept, b)
		}
	}
	f.set(kept, "spec", "backends")
}

// cleanBackend corrects the target of a backend.
func (c *converter) cleanBackend(o *object, field string, b fields) {
	name, _ := b.text("name")
	field += " " + name
	if protocol, _ := b.text("protocol"); protocol == string(v1alpha1.ProtocolUDP) {
		c.warn(o, field, "is proxied now; the operator did not proxy UDP")
	}
	service, _ := b.text("targetService")
	target := fmt.Sprintf("%s:%v", service, b.object["targetPort"])
	if slices.Contains(wrongTargets, target) {
		name, port := model.ControlPlaneTarget(service)
		b.set(name, "targetService")
		b.set(int64(port), "targetPort")
		c.warn(o, field, "%s is changed to %s:%d, which HyperShift creates", target, name, port)
	}
}

// remainingBackends returns the backends of a ProxyServer that the routes of its Infra do not include, without the
// names that these routes have.
func (c *converter) remainingBackends(s *infraGroup, infra *v1alpha1.Infra, u *unstructured.Unstructured) []any {
	routes := routesOf(s, infra)
	backends, _, _ := unstructured.NestedSlice(u.Object, "spec", "backends")
	var remaining []any
	var derived []string
	for _, one := range backends {
		b, ok := one.(map[string]any)
		if !ok {
			continue
		}
		f := fields{b}
		name, _ := f.text("name")
		hostname, _ := f.text("hostname")
		service, _ := f.text("targetService")
		if isIP(service) {
			switch apps := strings.HasPrefix(hostname, "*.apps."); { // the operator used a backend for the apps address
			case apps && infra.Spec.AppsIngress.IsEnabled():
				derived = append(derived, name)
			case apps:
				c.warn(s.proxy, "spec.backends "+name, "dropped: to route %s, enable spec.appsIngress of the Infra, which discovers the apps address, or also set its source to Static and its addresses to %s", hostname, service)
			default:
				c.warn(s.proxy, "spec.backends "+name, "dropped: the target %s is an address, not a Service", service)
			}
			continue
		}
		others, _, _ := unstructured.NestedStringSlice(b, "alternateHostnames")
		port, _, _ := unstructured.NestedInt64(b, "port")
		namespace, _ := f.text("targetNamespace")
		target := fmt.Sprintf("%s/%s/%v", namespace, service, b["targetPort"])
		var kept []any
		for _, host := range append([]string{hostname}, others...) {
			switch routed := routes[hostPort{strings.ToLower(strings.TrimSuffix(host, ".")), port}]; routed {
			case "":
				kept = append(kept, host)
			case target:
			default:
				c.warn(s.proxy, "spec.backends "+name, "%s on port %d is dropped: the Infra routes it to %s instead of %s", host, port, routed, target)
			}
		}
		if len(kept) == 0 {
			derived = append(derived, name)
			continue
		}
		b["hostname"] = kept[0]
		delete(b, "alternateHostnames")
		if len(kept) > 1 {
			b["alternateHostnames"] = kept[1:]
		}
		remaining = append(remaining, b)
	}
	if len(derived) > 0 {
		c.warn(s.proxy, "spec.backends", "dropped %s: the Infra includes these routes", strings.Join(derived, ", "))
	}
	return remaining
}

// A hostPort is a hostname and a port of the proxy.
type hostPort struct {
	host string
	port int64
}

// routesOf returns the routes that the model computes from an Infra: the upstream of each name, as
// "namespace/service/port".
func routesOf(s *infraGroup, infra *v1alpha1.Infra) map[hostPort]string {
	routes := map[hostPort]string{}
	snapshot := model.Build(modelObjects(s, infra), model.Options{Proxies: true})
	server := snapshot.ProxyServer(s.namespace + "/" + s.name)
	if server == nil {
		return routes
	}
	for _, l := range server.Listeners {
		for _, r := range l.Routes {
			routes[hostPort{r.Host, int64(l.Port)}] = r.Upstream
		}
	}
	return routes
}
