package verify

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
)

// expectation is a name with the addresses to which it should resolve.
type expectation struct {
	Name      string
	Addresses []netip.Addr
	// Ports has the ports at which clients connect to the name. The value is whether an object defines the
	// name, so that the server's certificate must contain it; conventional names need not be in it.
	Ports map[uint16]bool
}

// view returns the DNS view of a client; nil if there is none.
func (s *subject) view(c Client) *model.View {
	if c == Pod {
		return s.Snapshot.Pod()
	}
	for _, v := range s.Snapshot.VLANs {
		if v.Name == s.Model.VLAN {
			return v.View
		}
	}
	return nil
}

// names returns the names of the hosted cluster that a client sees and that have IPv4 addresses. In each domain of apps these
// are the console, and a name that no app has: DNS and the proxy must handle it like that of the app.
func (s *subject) names(c Client) []expectation {
	view := s.view(c)
	if view == nil || s.Cluster == nil {
		return nil
	}
	var list []expectation
	add := func(name string, addresses []netip.Addr, ports map[uint16]bool) {
		v4 := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !a.Is4() })
		if len(v4) > 0 {
			list = append(list, expectation{name, v4, ports})
		}
	}
	for _, n := range view.Names {
		if n.Target != nil && n.Cluster == s.Cluster.Ref {
			add(n.Name, n.Addresses, s.ports(n.Name))
		}
	}
	for _, a := range view.Apps {
		if a.Subtree && a.Served && a.Cluster != nil && *a.Cluster == s.Cluster.Ref {
			add(consoleHost+"."+a.Name, a.Addresses, map[uint16]bool{https: true})
		}
	}
	for _, n := range list {
		if s.isApp(n.Name) {
			_, domain, _ := strings.Cut(n.Name, ".")
			n.Name = s.label + "." + domain
			list = append(list, n)
		}
	}
	return list
}

// https is the port of apps.
const https = 443

// consoleHost is the host of an app that every OpenShift cluster has.
const consoleHost = "console-openshift-console"

// ports returns the ports of a control-plane name, as in expectation. It is empty for names without endpoints.
func (s *subject) ports(name string) map[uint16]bool {
	ports := map[uint16]bool{}
	for _, h := range s.Cluster.Hostnames {
		for _, e := range h.Endpoints {
			if h.Name == name && e.Port > 0 && e.Port <= 1<<16-1 {
				port := uint16(e.Port)
				ports[port] = ports[port] || e.Source != "convention"
			}
		}
	}
	return ports
}

// hasNamedCertificate reports whether the HostedCluster defines a certificate of another CA for a name of the API server.
// It assumes so if one has no names: it is for those that it contains, which are in a Secret.
func (s *subject) hasNamedCertificate(name string) bool {
	u := s.HostedCluster()
	if u == nil {
		return false
	}
	named, _, _ := unstructured.NestedSlice(u.Object, "spec", "configuration", "apiServer", "servingCerts", "namedCertificates")
	return slices.ContainsFunc(named, func(one any) bool {
		certificate, _ := one.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(certificate, "names")
		return len(names) == 0 || slices.ContainsFunc(names, func(pattern string) bool { return covers(pattern, name) })
	})
}

// covers reports whether a name of a certificate matches a name. A wildcard matches one label (RFC 9525, 6.3).
func covers(pattern, name string) bool {
	if domain, ok := strings.CutPrefix(pattern, "*."); ok {
		_, parent, _ := strings.Cut(name, ".")
		return parent == domain
	}
	return pattern == name
}
