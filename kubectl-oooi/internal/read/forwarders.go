package read

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A Forwarder is a server block of a Corefile, or a server in OpenShift's dns.operator.
type Forwarder struct {
	// Name is the name of the server; empty for a server block.
	Name string
	// Zones are the served zones on any port, since OpenShift's CoreDNS listens on 5353, without the final dot.
	Zones []string
	// Upstreams are the arguments of forward.
	Upstreams []string
}

// OperatorForwarders returns the servers of a dns.operator object.
func OperatorForwarders(u *unstructured.Unstructured) []Forwarder {
	servers, _, _ := unstructured.NestedSlice(u.Object, "spec", "servers")
	var list []Forwarder
	for _, server := range servers {
		server, _ := server.(map[string]any)
		var f Forwarder
		f.Name, _, _ = unstructured.NestedString(server, "name")
		f.Zones, _, _ = unstructured.NestedStringSlice(server, "zones")
		f.Upstreams, _, _ = unstructured.NestedStringSlice(server, "forwardPlugin", "upstreams")
		list = append(list, f)
	}
	return list
}

// CorefileForwarders returns the server blocks of a Corefile, and its snippets. It does not resolve imports.
func CorefileForwarders(corefile string) []Forwarder {
	var list []Forwarder
	for line := range strings.Lines(corefile) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[len(words)-1] == "{" && line[0] != ' ' && line[0] != '\t':
			var f Forwarder
			for _, zone := range words[:len(words)-1] {
				zone, _, _ = strings.Cut(strings.TrimSuffix(strings.TrimPrefix(zone, "dns://"), ","), ":")
				f.Zones = append(f.Zones, strings.TrimSuffix(zone, "."))
			}
			list = append(list, f)
		case words[0] == "forward" && len(list) > 0:
			last := &list[len(list)-1]
			last.Upstreams = append(last.Upstreams, words[1:]...)
		}
	}
	return list
}

// ForwardsTo reports whether an upstream, "address" or "address:port", is one of the addresses.
func (f Forwarder) ForwardsTo(addresses []string) bool {
	return slices.ContainsFunc(f.Upstreams, func(to string) bool {
		return slices.ContainsFunc(addresses, func(a string) bool { return to == a || to == a+":53" || to == "["+a+"]:53" })
	})
}
