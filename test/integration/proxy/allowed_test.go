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

func TestAddressesOfATenantAreNotBelieved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.infra.apps = "{enabled: true, source: MirroredService, service: {namespace: openshift-ingress, name: apps}}"
	s.controlPlane(t)
	// The Service that KubeVirt's cloud controller mirrors: its status is what the
	// hosted cluster's owner wants it to be.
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
	refused := map[string]string{
		"loopback": "127.0.0.1", "another of loopback": "127.0.53.1", "loopback of IPv6": "::1",
		"link-local, where clouds keep secrets": "169.254.169.254", "link-local of IPv6": "fe80::1",
		"unspecified": "0.0.0.0", "unspecified of IPv6": "::", "multicast": "224.0.0.1", "broadcast": "255.255.255.255",
		"the service range": "10.96.0.1", "the pod range": "10.132.0.1", "another VLAN": "198.19.0.1", "another VLAN of IPv6": "2001:db8:ffff::1",
		"the proxy": s.ip(3), "the proxy's of IPv6": s.net6 + "3", "the gateway": s.ip(1),
	}
	n := 100
	for what, address := range refused {
		// One that is allowed comes with it: when Envoy has that, all has been seen.
		n++
		good := s.ip(n)
		assign(fmt.Sprintf("{ip: %q}", address), fmt.Sprintf("{ip: %s}", good))
		lab.Poll(t, "the address that is allowed", func() bool { return slices.Contains(s.hosts(t), good+":443") })
		if hosts := s.hosts(t); len(hosts) != 2 || slices.ContainsFunc(hosts, func(host string) bool { return host != good+":443" && host != good+":80" }) {
			t.Errorf("%s: with %s, Envoy has %q", what, address, hosts)
		}
		state, _ := s.xdsd.state(t)
		if !slices.ContainsFunc(state.Problems, func(p model.Problem) bool {
			return p.Reason == model.ReasonAddressNotAllowed && strings.Contains(p.Message, fmt.Sprintf("%q", address))
		}) {
			t.Errorf("%s: %s is no problem in the state: %v", what, address, state.Problems)
		}
		for _, p := range state.ProxyServers {
			for _, u := range p.Upstreams {
				if slices.ContainsFunc(u.Addresses, func(a netip.AddrPort) bool { return a.Addr() == netip.MustParseAddr(address) }) {
					t.Errorf("%s: the state has %v for %s", what, u.Addresses, u.Name)
				}
			}
		}
	}
	// A name, which its owner could have resolve to anything, is not looked up at all.
	assign("{hostname: localhost}", fmt.Sprintf("{ip: %s}", s.ip(40)))
	s.await(t, 443, hello{sni: "shop.apps." + s.domain}, "apps")
	if hosts := s.hosts(t); len(hosts) != 2 {
		t.Errorf("with a name, Envoy has %q", hosts)
	}
	// Where there is nothing else, what was believed last stays.
	assign(`{ip: 127.0.0.1}`)
	lab.Poll(t, "the address to be refused", func() bool {
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

// hosts are the addresses that Envoy has for the applications, of both ports.
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
