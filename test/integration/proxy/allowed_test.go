package proxy_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

func addrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func TestTenantAddressesOutsideTheAllowedRangeAreRejected(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.infra.apps = "{enabled: true, source: MirroredService, service: {namespace: openshift-ingress, name: apps}}"
	s.controlPlane(t)
	// The Service that KubeVirt's cloud controller manager mirrors. The owner of the hosted cluster controls
	// its status.
	s.update(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata:
  name: a0123456789abcdef
  namespace: %s
  labels:
    cluster.x-k8s.io/cluster-name: %s-x7k2p
    cluster.x-k8s.io/tenant-service-name: apps
    cluster.x-k8s.io/tenant-service-namespace: openshift-ingress
spec: {type: LoadBalancer, ports: [{port: 443}]}
`, s.namespace(), s.name))
	s.start(t)
	assign := func(ingress ...string) {
		t.Helper()
		err := s.cp.ApplyStatusYAML(t.Context(), fmt.Appendf(nil, "apiVersion: v1\nkind: Service\nmetadata: {name: a0123456789abcdef, namespace: %s}\nstatus: {loadBalancer: {ingress: [%s]}}\n",
			s.namespace(), strings.Join(ingress, ", ")))
		if err != nil {
			t.Fatal(err)
		}
	}
	rejected := map[string]string{
		"loopback": "127.0.0.1", "other loopback address": "127.0.53.1", "IPv6 loopback": "::1",
		"cloud metadata service": "169.254.169.254", "IPv6 link-local": "fe80::1",
		"unspecified": "0.0.0.0", "IPv6 unspecified": "::", "multicast": "224.0.0.1", "broadcast": "255.255.255.255",
		"service range": "10.96.0.1", "pod range": "10.132.0.1", "other VLAN": "198.19.0.1", "other IPv6 VLAN": "2001:db8:ffff::1",
		"proxy": s.ip(3), "IPv6 address of the proxy": s.net6 + "3", "gateway": s.ip(1),
	}
	n := 100
	for what, address := range rejected {
		// An allowed address is set with it: when Envoy has the allowed one, both have been processed.
		n++
		good := s.ip(n)
		assign(fmt.Sprintf("{ip: %q}", address), fmt.Sprintf("{ip: %s}", good))
		lab.Poll(t, "the allowed address", func() bool { return slices.Contains(s.hosts(t), good+":443") })
		if hosts := s.hosts(t); len(hosts) != 2 || slices.ContainsFunc(hosts, func(host string) bool { return host != good+":443" && host != good+":80" }) {
			t.Errorf("%s: with %s Envoy has %q", what, address, hosts)
		}
		state, _ := s.xdsd.state(t)
		if !slices.ContainsFunc(state.Problems, func(p model.Problem) bool {
			return p.Reason == model.ReasonAddressNotAllowed && strings.Contains(p.Message, fmt.Sprintf("%q", address))
		}) {
			t.Errorf("%s: no problem about %s in the state: %v", what, address, state.Problems)
		}
		for _, p := range state.ProxyServers {
			for _, u := range p.Upstreams {
				if slices.ContainsFunc(u.Addresses, func(a netip.AddrPort) bool { return a.Addr() == netip.MustParseAddr(address) }) {
					t.Errorf("%s: the state has addresses %v for %s", what, u.Addresses, u.Name)
				}
			}
		}
	}
	// A hostname is not resolved, because its owner controls the answer.
	assign("{hostname: localhost}", fmt.Sprintf("{ip: %s}", s.ip(40)))
	s.await(t, 443, hello{sni: "shop.apps." + s.domain}, "apps")
	if hosts := s.hosts(t); len(hosts) != 2 {
		t.Errorf("with a hostname Envoy has %q", hosts)
	}
	// Without a valid address the last valid one is kept.
	assign(`{ip: 127.0.0.1}`)
	lab.Poll(t, "the address to be rejected", func() bool {
		state, _ := s.xdsd.state(t)
		return slices.ContainsFunc(state.Problems, func(p model.Problem) bool {
			return p.Reason == model.ReasonAddressNotAllowed && strings.Contains(p.Message, `"127.0.0.1"`)
		})
	})
	s.await(t, 443, hello{sni: "shop.apps." + s.domain}, "apps")
	if hosts := s.hosts(t); slices.ContainsFunc(hosts, func(host string) bool { return strings.HasPrefix(host, "127.") }) {
		t.Errorf("Envoy has %q", hosts)
	}
}

// hosts returns the addresses that Envoy has for the apps, on both ports.
func (s *site) hosts(t *testing.T) []string {
	t.Helper()
	body, err := s.envoy.Get(t.Context(), "/clusters")
	if err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for line := range strings.Lines(string(body)) {
		// infra/clusters/site1/apps-https::198.18.1.40:443::cx_active::0
		name, rest, _ := strings.Cut(line, "::")
		host, _, ok := strings.Cut(rest, "::cx_active::")
		if ok && strings.Contains(name, "clusters/"+s.name+"/apps-http") {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
