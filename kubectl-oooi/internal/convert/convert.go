package convert

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
)

// A Result has the converted objects.
type Result struct {
	// Objects has the Infras, each followed by its ProxyServer, the standalone ProxyServers and the VirtualIngresses.
	Objects []*unstructured.Unstructured
	// Warnings has a line for each problem of the conversion, such as a field that was dropped. It names the file, the
	// object and the field.
	Warnings []string
}

// Files converts the objects in files and URLs; for the name "-" it reads in. Objects without a namespace are treated
// as objects of the given namespace, but are returned without one. If a file cannot be read, if an object cannot be
// converted, or if there is none to convert, it returns nil and an error with one line for each problem.
func Files(names []string, in io.Reader, namespace string) (*Result, error) {
	all, err := documents.Read(names, in)
	if err != nil {
		return nil, err
	}
	c := &converter{namespace: namespace, groups: map[string]*infraGroup{}, services: map[string]*object{}}
	for _, o := range all {
		c.classify(o)
	}
	for _, s := range c.order {
		c.convertGroup(s)
	}
	for _, p := range c.standalone {
		c.standaloneProxyServer(p)
	}
	for _, i := range c.ingresses {
		c.ingress(i)
	}
	if len(c.errs) == 0 && len(c.result.Objects) == 0 {
		c.errs = append(c.errs, errors.New("no object to convert: the files contain no Infra, DHCPServer, DNSServer, ProxyServer or Ingress"))
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return &c.result, nil
}

type converter struct {
	namespace  string
	groups     map[string]*infraGroup // by "namespace/name" of the Infra
	order      []*infraGroup
	standalone []*object // ProxyServers without an Infra
	ingresses  []*object
	services   map[string]*object // by "namespace/name"
	result     Result
	errs       []error
}

// An infraGroup has an Infra and the objects that the operator created for it. Any of them may be nil.
type infraGroup struct {
	namespace, name string

	infra, dhcp, dns, proxy *object
}

// warn adds a warning about a field of an object, or about the object if field is empty.
func (c *converter) warn(o *object, field, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = field + ": " + text
	}
	c.result.Warnings = append(c.result.Warnings, fmt.Sprintf("%s: %s", o, text))
}

// fail adds an error about an object.
func (c *converter) fail(o *object, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", o, fmt.Sprintf(format, args...)))
}

// classify adds an object to its group, or to the list of its kind.
func (c *converter) classify(o *object) {
	kind := o.GroupVersionKind().GroupKind()
	switch {
	case kind.Kind == "Ingress" && (kind.Group == "networking.k8s.io" || kind.Group == "extensions"):
		if o.GetAPIVersion() != "networking.k8s.io/v1" {
			c.fail(o, "apiVersion %s: want networking.k8s.io/v1; export it with 'kubectl get ingress.v1.networking.k8s.io -o yaml'", o.GetAPIVersion())
			return
		}
		c.ingresses = append(c.ingresses, o)
		return
	case kind.String() == "Service":
		c.addService(o)
		return
	case kind.Group != v1alpha1.GroupName:
		c.warn(o, "", "dropped: not an object of the earlier operator")
		return
	case o.GetName() == "":
		c.fail(o, "metadata.name is missing")
		return
	case o.GroupVersionKind().Version != v1alpha1.SchemeGroupVersion.Version:
		c.fail(o, "apiVersion %s: want %s", o.GetAPIVersion(), v1alpha1.SchemeGroupVersion)
		return
	}
	switch kind.Kind {
	case "Infra":
		c.add(o, o.GetName(), func(s *infraGroup) **object { return &s.infra })
	case "DHCPServer":
		c.addChild(o, "-dhcp", func(s *infraGroup) **object { return &s.dhcp })
	case "DNSServer":
		c.addChild(o, "-dns", func(s *infraGroup) **object { return &s.dns })
	case "ProxyServer":
		c.addChild(o, "-proxy", func(s *infraGroup) **object { return &s.proxy })
	case "VirtualIngress":
		c.ingresses = append(c.ingresses, o)
	case "InfraClusterAttachment":
		c.fail(o, "unsupported kind: an Infra serves one hosted cluster; set spec.hostedClusterRef, spec.infraComponents.dns.clusterName and baseDomain, and spec.appsIngress of the Infra, and remove this object from the files")
	default:
		c.fail(o, "unsupported kind; expected Infra, DHCPServer, DNSServer, ProxyServer or Ingress")
	}
}

// addChild adds an object to the group of its Infra: the one in spec.infraRef, its owner, or else the one that the
// operator named it after, by appending suffix. A ProxyServer without an Infra is standalone; for other kinds this is
// an error.
func (c *converter) addChild(o *object, suffix string, slot func(*infraGroup) **object) {
	infra, _, _ := unstructured.NestedString(o.Object, "spec", "infraRef", "name")
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Infra" && strings.HasPrefix(owner.APIVersion, v1alpha1.GroupName+"/") {
			infra = cmp.Or(infra, owner.Name)
		}
	}
	if name, ok := strings.CutSuffix(o.GetName(), suffix); ok {
		infra = cmp.Or(infra, name)
	}
	switch {
	case infra != "":
		c.add(o, infra, slot)
	case o.GetKind() == "ProxyServer":
		c.standalone = append(c.standalone, o)
	default:
		c.fail(o, "cannot determine the Infra of the object; rename the object to INFRA%s in the file", suffix)
	}
}

// add puts an object into its slot of the group of an Infra. A second object for the same slot is an error.
func (c *converter) add(o *object, infra string, slot func(*infraGroup) **object) {
	namespace := cmp.Or(o.GetNamespace(), c.namespace)
	key := namespace + "/" + infra
	s := c.groups[key]
	if s == nil {
		s = &infraGroup{namespace: namespace, name: infra}
		c.groups[key] = s
		c.order = append(c.order, s)
	}
	if existing := slot(s); *existing == nil {
		*existing = o
	} else {
		c.fail(o, "duplicate %s of Infra %s; the first one is in %s", o.GetKind(), infra, (*existing).File)
	}
}

// convertGroup converts an Infra and the objects that the operator created for it.
func (c *converter) convertGroup(s *infraGroup) {
	before := len(c.errs)
	if s.infra == nil && s.dhcp == nil && s.dns == nil {
		c.standalone = append(c.standalone, s.proxy)
		return
	}
	old := c.decode(s)
	if len(c.errs) > before {
		return
	}
	var infra *unstructured.Unstructured
	if s.infra != nil {
		infra = clean(s.infra)
		c.cleanInfra(s.infra, infra)
	} else {
		if infra = c.deriveInfra(s, old); infra == nil {
			return
		}
		c.cleanInfra(&object{Unstructured: infra, File: c.fileOf(s)}, infra)
	}
	typed := &v1alpha1.Infra{}
	if err := decodeStrict(&object{Unstructured: infra, File: c.fileOf(s)}, typed); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	typed.Namespace = s.namespace
	typed.Default()
	if old.dhcp != nil {
		c.convertDHCP(s, infra, typed, old.dhcp)
	}
	if old.dns != nil {
		c.compareDNS(s, typed, old.dns)
	}
	c.result.Objects = append(c.result.Objects, infra)
	if old.proxy != nil {
		if server := c.proxyServer(s, infra, typed, old.proxy); server != nil {
			c.result.Objects = append(c.result.Objects, server)
		}
	}
}

// decoded has the typed objects of a group, without the Infra. Missing ones are nil.
type decoded struct {
	dhcp  *dhcpServer
	dns   *dnsServer
	proxy *v1alpha1.ProxyServer
}

// decode decodes the objects of a group strictly: an unknown field is an error.
func (c *converter) decode(s *infraGroup) decoded {
	var d decoded
	decodeInto := func(o *object, into any) {
		if err := decodeStrict(o, into); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	if s.infra != nil {
		decodeInto(s.infra, &v1alpha1.Infra{})
	}
	if s.dhcp != nil {
		d.dhcp = &dhcpServer{}
		decodeInto(s.dhcp, d.dhcp)
	}
	if s.dns != nil {
		d.dns = &dnsServer{}
		decodeInto(s.dns, d.dns)
	}
	if s.proxy != nil {
		d.proxy = &v1alpha1.ProxyServer{}
		decodeInto(s.proxy, d.proxy)
	}
	return d
}

// fileOf returns the names of the files that the objects of a group come from, separated by commas.
func (c *converter) fileOf(s *infraGroup) string {
	var files []string
	for _, o := range []*object{s.infra, s.dhcp, s.dns, s.proxy} {
		if o != nil && !slices.Contains(files, o.File) {
			files = append(files, o.File)
		}
	}
	return strings.Join(files, ", ")
}
