package proxy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// TestBrokenBackendsDoNotBlockUpdates serves a ProxyServer with backends that conflict with others, or have no target.
func TestBrokenBackendsDoNotBlockUpdates(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	good := s.ca.TLSBackend(t, s.at(21, 443), "good", s.in("good"), s.in("better"), s.in("other"))
	bad := s.ca.TLSBackend(t, s.at(22, 443), "bad", s.in("good"), s.in("oauth"))
	s.update(t, service("apps-"+s.name, "good", 443, good.Addr()), service("apps-"+s.name, "bad", 443, bad.Addr()),
		s.proxyServer(s.backend("good", s.in("good"), "good", "")))
	s.start(t)
	stream := s.startStream(t, 443, hello{sni: s.in("good")}, "good")
	broken := []struct {
		backend string
		reason  model.Reason
	}{
		{s.backend("stolen", s.in("oauth"), "bad", ""), model.ReasonNameConflict},
		{s.backendOn(80, "TLS", "http", s.in("http"), "bad", 443, ""), model.ReasonNameConflict},
		{s.backend("missing", s.in("missing"), "missing", ""), model.ReasonServiceNotFound},
		{s.backendOn(443, "TLS", "no-port", s.in("no-port"), "bad", 444, ""), model.ReasonServiceNotFound},
	}
	backends := []string{s.backend("good", s.in("good"), "good", "")}
	for _, p := range broken {
		backends = append(backends, p.backend)
	}
	s.update(t, s.proxyServer(append(backends, s.backend("better", s.in("better"), "good", ""))...))

	// Valid backends of the same object are served, and existing ones are kept.
	s.await(t, 443, hello{sni: s.in("better")}, "good")
	s.await(t, 443, hello{sni: s.in("GOOD")}, "good")
	s.check(t)
	state, text := s.xdsd.state(t)
	for i, p := range broken {
		part := fmt.Sprintf("spec.backends[%d] ", i+1)
		if !slices.ContainsFunc(state.Problems, func(problem model.Problem) bool {
			return problem.Reason == p.reason && strings.Contains(problem.Message, part)
		}) {
			t.Errorf("%s: no problem %s in the state: %v", p.backend, p.reason, state.Problems)
		}
	}
	if len(state.Served) != 1 || len(state.Served[0].Envoys) != 1 || state.Served[0].Envoys[0].Nack != nil {
		t.Errorf("Envoy sent a NACK: %.2000s", text)
	}

	// Later changes of this object and of others are served as well.
	s.update(t, s.route("late", "registry"), s.proxyServer(append(backends, s.backend("other", s.in("other"), "good", ""))...))
	s.await(t, 443, hello{sni: s.routeHost("late"), verify: s.routeHost("registry")}, "registry")
	s.await(t, 443, hello{sni: s.in("other")}, "good")
	for i := range broken {
		if n := len(s.xdsd.Log.Lines("level=WARN", fmt.Sprintf("spec.backends[%d] ", i+1))); n != 1 {
			t.Errorf("%s is logged %d times, want once", broken[i].backend, n)
		}
	}
	stream.end(t)
}

// TestTenantAddressesOutsideTheAllowedRangeAreRejected assigns addresses to the Service that KubeVirt's cloud controller
// manager mirrors. The owner of the hosted cluster controls its status.
func TestTenantAddressesOutsideTheAllowedRangeAreRejected(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.infra.apps = "{enabled: true, source: MirroredService, service: {namespace: openshift-ingress, name: apps}}"
	s.controlPlane(t)
	s.update(t, fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata:
  name: mirrored
  namespace: %s
  labels:
    cluster.x-k8s.io/cluster-name: %s-x7k2p
    cluster.x-k8s.io/tenant-service-name: apps
    cluster.x-k8s.io/tenant-service-namespace: openshift-ingress
spec: {type: LoadBalancer, ports: [{port: 443}]}
`, s.ControlPlaneNamespace(), s.name))
	s.start(t)
	for i, ingress := range []string{"ip: 127.0.0.1", `ip: "::1"`, "ip: 169.254.169.254", "ip: " + s.IP(3), "hostname: localhost"} {
		// An allowed address is set with it: when Envoy has the allowed one, both have been processed.
		good := s.IP(100 + i)
		err := s.cp.ApplyStatusYAML(t.Context(), fmt.Appendf(nil, "apiVersion: v1\nkind: Service\nmetadata: {name: mirrored, namespace: %s}\nstatus: {loadBalancer: {ingress: [{%s}, {ip: %s}]}}\n",
			s.ControlPlaneNamespace(), ingress, good))
		lab.Must(t, err)
		var hosts []string
		lab.Poll(t, "the allowed address", func() bool {
			hosts = s.hosts(t)
			return slices.Contains(hosts, good+":443") && slices.Contains(hosts, good+":80")
		})
		if len(hosts) != 2 {
			t.Errorf("with {%s} Envoy has %q", ingress, hosts)
		}
		address, isIP := strings.CutPrefix(ingress, "ip: ")
		state, _ := s.xdsd.state(t)
		if isIP && !slices.ContainsFunc(state.Problems, func(p model.Problem) bool {
			return p.Reason == model.ReasonAddressNotAllowed && strings.Contains(p.Message, strconv.Quote(strings.Trim(address, `"`)))
		}) {
			t.Errorf("no problem about %s in the state: %v", address, state.Problems)
		}
	}
}

// hosts returns the addresses that Envoy has for the apps, on both ports.
func (s *site) hosts(t *testing.T) (hosts []string) {
	t.Helper()
	body, err := s.envoy.Get(t.Context(), "/clusters")
	lab.Must(t, err)
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
