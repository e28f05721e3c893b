package convert

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
)

// components are those of an Infra.
var components = []string{"dhcp", "dns", "proxy"}

// cleanInfra takes out of an Infra what means nothing here, and what has another form. o is what
// it was read from.
func (c *converter) cleanInfra(o *object, infra *unstructured.Unstructured) {
	f := fields{infra.Object}
	network := []string{"spec", "networkConfig"}
	cidr, _ := f.text(append(network, "cidr")...)
	for _, component := range components {
		for _, field := range []string{"serverIP", "rangeStart", "rangeEnd"} {
			c.cleanAddress(o, f, cidr, "spec", "infraComponents", component, field)
		}
	}
	c.cleanAttachment(o, f, "spec.networkConfig.networkAttachmentDefinition")
	for _, component := range []string{"dhcp", "dns"} {
		c.drop(o, f, "it is an image of the operator, and setup has its own", "spec", "infraComponents", component, "image")
	}
	c.cleanImages(o, f, "spec", "infraComponents", "proxy")
	c.cleanProxyService(o, f)
	f.prune("spec", "appsIngress")
	f.prune("spec", "infraComponents")
	f.prune("spec", "networkConfig")
	for _, ref := range [][]string{{"spec", "hostedClusterRef"}, {"spec", "appsIngress", "hostedClusterRef"}} {
		if name, _ := f.text(append(slices.Clone(ref), "name")...); name == "" {
			f.remove(ref...) // the operator wrote references to nothing
		}
	}
	if enabled, _, _ := unstructured.NestedBool(infra.Object, "spec", "appsIngress", "enabled"); enabled {
		if _, ok := f.text("spec", "appsIngress", "service", "name"); !ok {
			// Another name would be another Service, with another address.
			f.set(oldAppsService, "spec", "appsIngress", "service", "name")
			c.warn(o, "spec.appsIngress.service.name", "set to %s, which the operator took where nothing was said", oldAppsService)
		}
		source, _ := f.text("spec", "appsIngress", "source")
		class, _ := f.text("spec", "appsIngress", "metallb", "loadBalancerClass")
		if class == "" && (source == "" || source == string(v1alpha1.AppsIngressSourceHostedService)) {
			c.warn(o, "spec.appsIngress.metallb.loadBalancerClass", "setup requires it on KubeVirt: set the class that MetalLB runs with, or set spec.appsIngress.source to MirroredService or Static")
		}
	}
}

// cleanAddress takes the prefix length off an address.
func (c *converter) cleanAddress(o *object, f fields, cidr string, path ...string) {
	text, ok := f.text(path...)
	if !ok {
		return
	}
	bare, differs := bareAddress(text, cidr)
	if differs {
		c.warn(o, strings.Join(path, "."), "the prefix length of %s is left out: that of spec.networkConfig.cidr, %s, counts", text, cidr)
	}
	f.set(bare, path...)
}

// bareAddress is an address without its prefix length, and whether that is not the network's.
// What is no address is left as it is, for setup to refuse.
func bareAddress(text, cidr string) (bare string, differs bool) {
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return text, false
	}
	network, err := netip.ParsePrefix(cidr)
	return p.Addr().String(), err == nil && network.Bits() != p.Bits()
}

// cleanAttachment takes namespace/name apart; the namespace in the name wins. field is where the
// name is, and the namespace is beside it.
func (c *converter) cleanAttachment(o *object, f fields, field string) {
	path := strings.Split(field, ".")
	beside := append(slices.Clone(path[:len(path)-1]), "networkAttachmentNamespace")
	text, _ := f.text(path...)
	namespace, name, both := strings.Cut(text, "/")
	if !both || strings.Contains(name, "/") {
		return
	}
	if other, _ := f.text(beside...); other != "" && other != namespace {
		c.warn(o, strings.Join(beside, "."), "%s is left out: %s in %s counts", other, namespace, text)
	}
	f.set(name, path...)
	f.set(namespace, beside...)
}

// cleanImages looks at the images of a proxy, in an Infra or in a ProxyServer.
func (c *converter) cleanImages(o *object, f fields, path ...string) {
	c.drop(o, f, "it configures the earlier operator", append(slices.Clone(path), "managerImage")...)
	path = append(slices.Clone(path), "proxyImage")
	image, ok := f.text(path...)
	if !ok || image == "" {
		return
	}
	switch minor := envoyMinor(image); {
	case minor < 0:
		c.warn(o, strings.Join(path, "."), "%s stays: see that it is Envoy 1.%d or later", image, oldestEnvoy)
	case minor < oldestEnvoy:
		f.remove(path...)
		c.warn(o, strings.Join(path, "."), "%s is left out: Envoy has to be 1.%d or later, and setup has an image of its own", image, oldestEnvoy)
	}
}

// oldestEnvoy is the minor version that our configuration takes at least.
const oldestEnvoy = 31

var envoyTag = regexp.MustCompile(`:(?:[a-z-]*-)?v?1\.(\d+)(?:[.-][^:/]*)?$`)

// envoyMinor is the minor version of Envoy in an image's tag; -1 where it has none.
func envoyMinor(image string) int {
	image, _, _ = strings.Cut(image, "@")
	tag := envoyTag.FindStringSubmatch(image)
	if tag == nil {
		return -1
	}
	minor, err := strconv.Atoi(tag[1])
	if err != nil {
		return -1
	}
	return minor
}

// cleanProxyService leaves the operator's own Service of the proxy out: ours is found by itself,
// and the operator's goes with it.
func (c *converter) cleanProxyService(o *object, f fields) {
	path := []string{"spec", "infraComponents", "proxy", "internalProxyService"}
	text, ok := f.text(path...)
	if !ok || text == "" {
		return
	}
	service, rest, _ := strings.Cut(text, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	own := service == o.GetName()+"-proxy" || service == o.GetName()+"-proxy-proxy"
	if _, err := netip.ParseAddr(text); err != nil && own && (o.GetNamespace() == "" || namespace == o.GetNamespace()) {
		f.remove(path...)
		c.warn(o, strings.Join(path, "."), "%s is left out: setup makes a Service of the proxy, which DNS follows", text)
		return
	}
	c.warn(o, strings.Join(path, "."), "%s stays: if it is the operator's Service, which goes with the operator, take it out", text)
}

// drop takes a field out, and says so.
func (c *converter) drop(o *object, f fields, why string, path ...string) {
	if value, ok := f.text(path...); ok {
		f.remove(path...)
		if value != "" {
			c.warn(o, strings.Join(path, "."), "%s is left out: %s", value, why)
		}
	}
}

// fields are those of an object.
type fields struct{ object map[string]any }

func (f fields) text(path ...string) (string, bool) {
	text, ok, err := unstructured.NestedString(f.object, path...)
	return text, ok && err == nil
}

func (f fields) set(value any, path ...string) {
	if err := unstructured.SetNestedField(f.object, value, path...); err != nil {
		panic(err) // the object was decoded, so that what holds the field is a mapping
	}
}

func (f fields) remove(path ...string) { unstructured.RemoveNestedField(f.object, path...) }

// prune takes empty texts out, which the operator wrote where nothing was said. Empty mappings
// stay: they can mean something.
func (f fields) prune(path ...string) {
	if m, ok, err := unstructured.NestedFieldNoCopy(f.object, path...); ok && err == nil {
		pruneEmpty(m)
	}
}

func pruneEmpty(value any) {
	m, ok := value.(map[string]any)
	if !ok {
		return
	}
	for key, v := range m {
		if key == "annotations" || key == "labels" {
			continue // an empty value is one
		}
		if v == "" {
			delete(m, key)
			continue
		}
		pruneEmpty(v)
	}
}
