package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// renamed are targets that HyperShift has not, and those that were meant: samples of the operator
// have them.
var renamed = map[string]string{
	"ignition-server:22623":    "ignition-server-proxy:443",
	"konnectivity-server:8132": "konnectivity-server:8091",
	"konnectivity-server:8090": "konnectivity-server:8091",
}

// isControlPlane reports whether a Service is one of those of a hosted control plane.
func isControlPlane(service string) bool {
	return slices.Contains([]string{"kube-apiserver", "oauth-openshift", "ignition-server", "ignition-server-proxy", "konnectivity-server"}, service)
}

// proxyServer is the ProxyServer that has what the Infra's routes have not; nil where that is
// nothing: setup makes one.
func (c *converter) proxyServer(s *site, infra *unstructured.Unstructured, typed *v1alpha1.Infra, old *v1alpha1.ProxyServer) *unstructured.Unstructured {
	proxy := typed.Spec.InfraComponents.Proxy
	if !proxy.IsEnabled() {
		c.warn(s.proxy, "", "left out: the Infra %s has no proxy", s.name)
		return nil
	}
	u := clean(s.proxy)
	f := fields{u.Object}
	if old.Spec.InfraRef == nil { // the operator wrote its defaults here; the Infra says what is wanted
		f.remove("spec", "managerImage")
		f.remove("spec", "proxyImage")
		if proxy.ProxyImage != "" {
			c.differs(s.proxy, "spec.proxyImage", old.Spec.ProxyImage, "spec.infraComponents.proxy.proxyImage", proxy.ProxyImage)
		}
	}
	c.cleanAddress(s.proxy, f, typed.Spec.NetworkConfig.CIDR, "spec", "networkConfig", "serverIP")
	c.cleanProxyServer(s.proxy, u)
	address, _ := f.text("spec", "networkConfig", "serverIP")
	c.differs(s.proxy, "spec.networkConfig.serverIP", address, "spec.infraComponents.proxy.serverIP", proxy.ServerIP)
	c.attached(s, s.proxy, typed, attachment{old.Spec.NetworkConfig.NetworkAttachmentName, old.Spec.NetworkConfig.NetworkAttachmentNamespace})
	left := c.beside(s, typed, u)
	if old.Spec.InfraRef != nil { // it is one of ours already
		f.set(left, "spec", "backends")
		if len(left) == 0 {
			f.remove("spec", "backends")
		}
		return u
	}
	if level := old.Spec.LogLevel; level != "" && level != v1alpha1.DefaultLogLevel {
		// The Infra's wins over the ProxyServer's.
		fields{infra.Object}.set(string(level), "spec", "infraComponents", "proxy", "logLevel")
	}
	if port := old.Spec.Port; port != 0 && port != v1alpha1.DefaultProxyPort {
		c.warn(s.proxy, "spec.port", "%d is left out: the proxy listens where its routes are", port)
	}
	if len(left) == 0 {
		return nil
	}
	u.Object["spec"] = map[string]any{
		"infraRef":      map[string]any{"name": s.name},
		"networkConfig": map[string]any{"serverIP": proxy.ServerIP},
		"backends":      left,
	}
	u.SetName(s.name) // as setup names it; the operator's goes
	return u
}

// loneProxyServer converts a ProxyServer that is no Infra's.
func (c *converter) loneProxyServer(o *object) {
	if err := strict(o, &v1alpha1.ProxyServer{}); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	u := clean(o)
	c.cleanProxyServer(o, u)
	f := fields{u.Object}
	c.prefixed(o, f)
	var left []any
	backends, _, _ := unstructured.NestedSlice(u.Object, "spec", "backends")
	for _, one := range backends {
		b, _ := one.(map[string]any)
		name, _ := fields{b}.text("name")
		if service, _ := (fields{b}).text("targetService"); isIP(service) {
			c.warn(o, "spec.backends "+name, "left out: %s is an address, and no Service", service)
			continue
		}
		left = append(left, b)
	}
	_, named := f.text("spec", "infraRef", "name")
	switch {
	case len(left) > 0:
		f.set(left, "spec", "backends")
	case named:
		f.remove("spec", "backends")
	default:
		c.fail(o, "spec.backends: nothing is left of them, and there is no Infra that has routes")
		return
	}
	c.result.Objects = append(c.result.Objects, u)
}

// prefixed sees that the address of a ProxyServer has a prefix length, where no Infra has one.
func (c *converter) prefixed(o *object, f fields) {
	path := []string{"spec", "networkConfig", "serverIP"}
	if _, named := f.text("spec", "infraRef", "name"); named {
		return
	}
	if text, _ := f.text(path...); isIP(text) && !strings.Contains(text, ":") {
		f.set(text+"/24", path...)
		c.warn(o, strings.Join(path, "."), "%s is %s/24 now, which is what the operator took: correct it if the network is another", text, text)
	}
}

// cleanProxyServer takes out of a ProxyServer what means nothing here, and puts its targets right.
func (c *converter) cleanProxyServer(o *object, u *unstructured.Unstructured) {
	f := fields{u.Object}
	c.cleanAttachment(o, f, "spec.networkConfig.networkAttachmentName")
	c.cleanImages(o, f, "spec")
	if port, ok, _ := unstructured.NestedInt64(u.Object, "spec", "xdsPort"); ok {
		f.remove("spec", "xdsPort")
		if port != int64(v1alpha1.DefaultXDSPort) {
			c.warn(o, "spec.xdsPort", "%d is left out: xdsd and Envoy use a Unix socket", port)
		}
	}
	f.prune("spec")
	backends, ok, _ := unstructured.NestedSlice(u.Object, "spec", "backends")
	if !ok {
		return
	}
	kept := []any{}
	for i := range backends {
		if b, ok := backends[i].(map[string]any); ok && c.cleanBackend(o, fmt.Sprintf("spec.backends[%d]", i), fields{b}) {
			kept = append(kept, b)
		}
	}
	f.set(kept, "spec", "backends")
}

// cleanBackend puts a backend right, and reports whether there is something left of it.
func (c *converter) cleanBackend(o *object, field string, b fields) bool {
	name, _ := b.text("name")
	field += " " + name
	if protocol, _ := b.text("protocol"); protocol == string(v1alpha1.ProtocolUDP) {
		c.warn(o, field, "left out: UDP is not proxied, and was not before")
		return false
	}
	service, _ := b.text("targetService")
	target := fmt.Sprintf("%s:%v", service, b.object["targetPort"])
	if right, ok := renamed[target]; ok {
		service, port, _ := strings.Cut(right, ":")
		number, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			panic(err) // it is in the table
		}
		b.set(service, "targetService")
		b.set(number, "targetPort")
		c.warn(o, field, "%s is %s now: the other does not exist in a hosted control plane", target, right)
	}
	return true
}

// beside are the backends of a ProxyServer that an Infra's routes have not, without the names that
// they have.
func (c *converter) beside(s *site, infra *v1alpha1.Infra, u *unstructured.Unstructured) []any {
	routes := routesOf(s, infra)
	backends, _, _ := unstructured.NestedSlice(u.Object, "spec", "backends")
	var left []any
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
			switch apps := strings.HasPrefix(hostname, "*.apps."); { // the operator wrote their address here
			case apps && infra.Spec.AppsIngress.IsEnabled():
				derived = append(derived, name)
			case apps:
				c.warn(s.proxy, "spec.backends "+name, "left out: for %s enable spec.appsIngress of the Infra, which finds the address, or is told %s with source Static", hostname, service)
			default:
				c.warn(s.proxy, "spec.backends "+name, "left out: %s is an address, and no Service", service)
			}
			continue
		}
		others, _, _ := unstructured.NestedStringSlice(b, "alternateHostnames")
		port, _, _ := unstructured.NestedInt64(b, "port")
		namespace, _ := f.text("targetNamespace")
		target := fmt.Sprintf("%s/%s/%v", namespace, service, b["targetPort"])
		var kept []any
		for _, host := range append([]string{hostname}, others...) {
			switch now := routes[hostPort{strings.ToLower(strings.TrimSuffix(host, ".")), port}]; now {
			case "":
				kept = append(kept, host)
			case target:
			default:
				c.warn(s.proxy, "spec.backends "+name, "%s on port %d is left out: by the Infra it leads to %s, and not to %s", host, port, now, target)
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
		left = append(left, b)
	}
	if len(derived) > 0 {
		c.warn(s.proxy, "spec.backends", "%s: left out, since their routes are computed from the Infra", strings.Join(derived, ", "))
	}
	return left
}

// hostPort is a name on a port.
type hostPort struct {
	host string
	port int64
}

// routesOf are the routes that an Infra amounts to: where each name leads, as
// namespace/service/port.
func routesOf(s *site, infra *v1alpha1.Infra) map[hostPort]string {
	routes := map[hostPort]string{}
	snapshot := model.Build(asComputed(s, infra), model.Options{Proxies: true})
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
