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

// components are the names of the components in spec.infraComponents.
var components = []string{"dhcp", "dns", "proxy"}

// cleanInfra removes or converts the fields of an Infra that oooi does not use. Warnings name the object o, which
// infra was read from.
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
		c.drop(o, f, "an image of the earlier operator", "spec", "infraComponents", component, "image")
	}
	c.cleanImages(o, f, "spec", "infraComponents", "proxy")
	c.cleanProxyService(o, f)
	f.prune("spec", "appsIngress")
	f.prune("spec", "infraComponents")
	f.prune("spec", "networkConfig")
	for _, ref := range [][]string{{"spec", "hostedClusterRef"}, {"spec", "appsIngress", "hostedClusterRef"}} {
		if name, _ := f.text(append(slices.Clone(ref), "name")...); name == "" {
			f.remove(ref...) // the operator wrote empty references
		}
	}
	if enabled, _, _ := unstructured.NestedBool(infra.Object, "spec", "appsIngress", "enabled"); enabled {
		if _, ok := f.text("spec", "appsIngress", "service", "name"); !ok {
			// With our default name control would create another Service, which would get another address.
			f.set(oldAppsService, "spec", "appsIngress", "service", "name")
			c.warn(o, "spec.appsIngress.service.name", "set to %s, the default of the operator", oldAppsService)
		}
		source, _ := f.text("spec", "appsIngress", "source")
		class, _ := f.text("spec", "appsIngress", "metallb", "loadBalancerClass")
		if class == "" && (source == "" || source == string(v1alpha1.AppsIngressSourceHostedService)) {
			c.warn(o, "spec.appsIngress.metallb.loadBalancerClass", "setup requires it on KubeVirt: set the class that MetalLB runs with, or set spec.appsIngress.source to MirroredService or Static")
		}
	}
}

// cleanAddress removes the prefix length of an address, and warns if it is not that of cidr.
func (c *converter) cleanAddress(o *object, f fields, cidr string, path ...string) {
	text, ok := f.text(path...)
	if !ok {
		return
	}
	address, differs := trimPrefixLength(text, cidr)
	if differs {
		c.warn(o, strings.Join(path, "."), "the prefix length of %s is dropped: spec.networkConfig.cidr is %s", text, cidr)
	}
	f.set(address, path...)
}

// trimPrefixLength returns an address without its prefix length, and whether that differs from the prefix length of
// cidr. It returns an invalid address unchanged: setup refuses it.
func trimPrefixLength(text, cidr string) (address string, differs bool) {
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		return text, false
	}
	network, err := netip.ParsePrefix(cidr)
	return p.Addr().String(), err == nil && network.Bits() != p.Bits()
}

// cleanAttachment splits "namespace/name" in a field into this field and networkAttachmentNamespace. The namespace in
// the name takes precedence over the one in networkAttachmentNamespace.
func (c *converter) cleanAttachment(o *object, f fields, field string) {
	path := strings.Split(field, ".")
	namespacePath := append(slices.Clone(path[:len(path)-1]), "networkAttachmentNamespace")
	text, _ := f.text(path...)
	namespace, name, both := strings.Cut(text, "/")
	if !both || strings.Contains(name, "/") {
		return
	}
	if other, _ := f.text(namespacePath...); other != "" && other != namespace {
		c.warn(o, strings.Join(namespacePath, "."), "%s is dropped: %s names the namespace %s", other, text, namespace)
	}
	f.set(name, path...)
	f.set(namespace, namespacePath...)
}

// cleanImages removes the manager's image, and an image of Envoy that is too old, below a path of an Infra or a
// ProxyServer.
func (c *converter) cleanImages(o *object, f fields, path ...string) {
	c.drop(o, f, "only the earlier operator uses it", append(slices.Clone(path), "managerImage")...)
	path = append(slices.Clone(path), "proxyImage")
	image, ok := f.text(path...)
	if !ok || image == "" {
		return
	}
	switch minor := envoyMinor(image); {
	case minor < 0:
		c.warn(o, strings.Join(path, "."), "%s is kept: verify that it is Envoy 1.%d or later", image, oldestEnvoy)
	case minor < oldestEnvoy:
		f.remove(path...)
		c.warn(o, strings.Join(path, "."), "%s is dropped: Envoy must be 1.%d or later; setup uses its default image", image, oldestEnvoy)
	}
}

// oldestEnvoy is the lowest minor version of Envoy 1.x that accepts our configuration.
const oldestEnvoy = 31

var envoyTag = regexp.MustCompile(`:(?:[a-z-]*-)?v?1\.(\d+)(?:[.-][^:/]*)?$`)

// envoyMinor returns the minor version of Envoy in the tag of an image, or -1 if the tag has none.
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

// cleanProxyService removes internalProxyService if it is the operator's Service, which is deleted with the operator.
// DNS finds the Service that setup creates without it.
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
		c.warn(o, strings.Join(path, "."), "%s is dropped: setup creates a Service for the proxy, which DNS uses", text)
		return
	}
	c.warn(o, strings.Join(path, "."), "%s is kept: remove the field if this is the operator's Service, which is deleted with the operator", text)
}

// drop removes a field, and warns with the reason if it was not empty.
func (c *converter) drop(o *object, f fields, why string, path ...string) {
	if value, ok := f.text(path...); ok {
		f.remove(path...)
		if value != "" {
			c.warn(o, strings.Join(path, "."), "%s is dropped: %s", value, why)
		}
	}
}

// fields gets and sets fields of an object by their paths.
type fields struct{ object map[string]any }

func (f fields) text(path ...string) (string, bool) {
	text, ok, err := unstructured.NestedString(f.object, path...)
	return text, ok && err == nil
}

func (f fields) set(value any, path ...string) {
	if err := unstructured.SetNestedField(f.object, value, path...); err != nil {
		panic(err) // the object was decoded strictly, so the parent of the field is a mapping
	}
}

func (f fields) remove(path ...string) { unstructured.RemoveNestedField(f.object, path...) }

// prune removes empty strings below a path, which the operator wrote for unset fields. It keeps empty mappings,
// because an empty block of a component enables it.
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
			continue // the value of a label or annotation may be empty
		}
		if v == "" {
			delete(m, key)
			continue
		}
		pruneEmpty(v)
	}
}
