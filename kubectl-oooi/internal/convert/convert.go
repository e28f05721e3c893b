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

// Result is what became of the objects.
type Result struct {
	// Objects are Infras and ProxyServers, each Infra's after it, and VirtualIngresses.
	Objects []*unstructured.Unstructured
	// Warnings name file, object and field of what is not as it was, in the order of reading.
	Warnings []string
}

// Files converts the objects in files; "-" is in. Objects without a namespace count as in the
// given one, and stay without. An error has every reason, each on a line.
func Files(names []string, in io.Reader, namespace string) (*Result, error) {
	all, err := documents.Read(names, in)
	if err != nil {
		return nil, err
	}
	c := &converter{namespace: namespace, sites: map[string]*site{}, services: map[string]*object{}}
	for _, o := range all {
		c.sort(o)
	}
	for _, s := range c.order {
		c.site(s)
	}
	for _, p := range c.lone {
		c.loneProxyServer(p)
	}
	for _, i := range c.ingresses {
		c.ingress(i)
	}
	if len(c.errs) == 0 && len(c.result.Objects) == 0 {
		c.errs = append(c.errs, errors.New("no object of the operator in the files: -f names files with its Infra, DHCPServer, DNSServer or ProxyServer, or with an Ingress"))
	}
	if err := errors.Join(c.errs...); err != nil {
		return nil, err
	}
	return &c.result, nil
}

type converter struct {
	namespace string
	sites     map[string]*site
	order     []*site
	lone      []*object // ProxyServers that are no Infra's
	ingresses []*object
	services  map[string]*object // by "namespace/name"
	result    Result
	errs      []error
}

// site is an Infra and what the operator made of it.
type site struct {
	namespace, name string

	infra, dhcp, dns, proxy *object
}

// warn says what is not as it was; field is empty for the whole object.
func (c *converter) warn(o *object, field, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if field != "" {
		text = field + ": " + text
	}
	c.result.Warnings = append(c.result.Warnings, fmt.Sprintf("%s: %s", o, text))
}

func (c *converter) fail(o *object, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s: %s", o, fmt.Sprintf(format, args...)))
}

// sort puts an object where it belongs.
func (c *converter) sort(o *object) {
	kind := o.GroupVersionKind().GroupKind()
	switch {
	case kind.Kind == "Ingress" && (kind.Group == "networking.k8s.io" || kind.Group == "extensions"):
		if o.GetAPIVersion() != "networking.k8s.io/v1" {
			c.fail(o, "apiVersion %s: want networking.k8s.io/v1, as 'kubectl get ingress.v1.networking.k8s.io' gives it out", o.GetAPIVersion())
			return
		}
		c.ingresses = append(c.ingresses, o)
		return
	case kind.String() == "Service":
		c.keepService(o)
		return
	case kind.Group != v1alpha1.GroupName:
		c.warn(o, "", "left out: it is none of the operator's")
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
		c.put(o, o.GetName(), func(s *site) **object { return &s.infra })
	case "DHCPServer":
		c.child(o, "-dhcp", func(s *site) **object { return &s.dhcp })
	case "DNSServer":
		c.child(o, "-dns", func(s *site) **object { return &s.dns })
	case "ProxyServer":
		c.child(o, "-proxy", func(s *site) **object { return &s.proxy })
	case "VirtualIngress":
		c.ingresses = append(c.ingresses, o)
	case "InfraClusterAttachment":
		c.fail(o, "an Infra of oooi serves one hosted cluster: write what this says into it (spec.hostedClusterRef, spec.infraComponents.dns.clusterName and baseDomain, spec.appsIngress), and leave this out of the files")
	default:
		c.fail(o, "convert does not know this kind: it reads Infra, DHCPServer, DNSServer, ProxyServer and Ingress")
	}
}

// child puts an object beside the Infra that it was made of: the one that owns it or that it
// names, else the one that the operator would have named it after.
func (c *converter) child(o *object, suffix string, where func(*site) **object) {
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
		c.put(o, infra, where)
	case o.GetKind() == "ProxyServer":
		c.lone = append(c.lone, o)
	default:
		c.fail(o, "whose is it? The operator names it after its Infra, which then is NAME where this is NAME%s: rename it in the file", suffix)
	}
}

func (c *converter) put(o *object, infra string, where func(*site) **object) {
	namespace := cmp.Or(o.GetNamespace(), c.namespace)
	key := namespace + "/" + infra
	s := c.sites[key]
	if s == nil {
		s = &site{namespace: namespace, name: infra}
		c.sites[key] = s
		c.order = append(c.order, s)
	}
	if place := where(s); *place == nil {
		*place = o
	} else {
		c.fail(o, "Infra %s has one already, in %s", infra, (*place).File)
	}
}

// site converts an Infra with what the operator made of it.
func (c *converter) site(s *site) {
	before := len(c.errs)
	if s.infra == nil && s.dhcp == nil && s.dns == nil {
		c.lone = append(c.lone, s.proxy)
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
		if infra = c.made(s, old); infra == nil {
			return
		}
		c.cleanInfra(&object{Unstructured: infra, File: c.fileOf(s)}, infra)
	}
	typed := &v1alpha1.Infra{}
	if err := strict(&object{Unstructured: infra, File: c.fileOf(s)}, typed); err != nil {
		c.errs = append(c.errs, err)
		return
	}
	typed.Namespace = s.namespace
	typed.Default()
	if old.dhcp != nil {
		c.dhcp(s, infra, typed, old.dhcp)
	}
	if old.dns != nil {
		c.dns(s, typed, old.dns)
	}
	c.result.Objects = append(c.result.Objects, infra)
	if old.proxy != nil {
		if server := c.proxyServer(s, infra, typed, old.proxy); server != nil {
			c.result.Objects = append(c.result.Objects, server)
		}
	}
}

// decoded are a site's objects with types.
type decoded struct {
	dhcp  *dhcpServer
	dns   *dnsServer
	proxy *v1alpha1.ProxyServer
}

func (c *converter) decode(s *site) decoded {
	var d decoded
	try := func(o *object, into any) {
		if err := strict(o, into); err != nil {
			c.errs = append(c.errs, err)
		}
	}
	if s.infra != nil {
		try(s.infra, &v1alpha1.Infra{})
	}
	if s.dhcp != nil {
		d.dhcp = &dhcpServer{}
		try(s.dhcp, d.dhcp)
	}
	if s.dns != nil {
		d.dns = &dnsServer{}
		try(s.dns, d.dns)
	}
	if s.proxy != nil {
		d.proxy = &v1alpha1.ProxyServer{}
		try(s.proxy, d.proxy)
	}
	return d
}

// fileOf names the files that an Infra comes from.
func (c *converter) fileOf(s *site) string {
	var files []string
	for _, o := range []*object{s.infra, s.dhcp, s.dns, s.proxy} {
		if o != nil && !slices.Contains(files, o.File) {
			files = append(files, o.File)
		}
	}
	return strings.Join(files, ", ")
}
