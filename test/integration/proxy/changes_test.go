package proxy_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestChangesKeepOtherConnections makes changes of each kind while connections are open. Envoy must also update the filter
// chains of its listeners in place: replacing a listener would close all of its connections after the drain time, for
// which the test does not wait.
func TestChangesKeepOtherConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	one := s.ca.TLSBackend(t, s.at(21, 443), "one", s.in("*.more"), s.in("swap"))
	two := s.ca.TLSBackend(t, s.at(22, 443), "two", s.in("*.more"), s.in("swap"))
	routed := s.ca.TLSBackend(t, s.at(23, 443), "routed", s.routeHost("new"))
	s.ca.TLSBackend(t, s.at(41, 443), "apps-next", s.in("shop.apps"))
	apps := "apps-" + s.name
	fixed := []string{s.backend("swap", s.in("swap"), "swap", ""), s.backendOn(7443, "TLS", "other", s.in("swap"), "two", 443, "")}
	with := func(backends ...string) string { return s.proxyServer(append(slices.Clone(fixed), backends...)...) }
	s.update(t, service(apps, "one", 443, one.Addr()), service(apps, "two", 443, two.Addr()), service(apps, "swap", 443, one.Addr()),
		service(s.ControlPlaneNamespace(), "routed", 443, routed.Addr()), with())
	s.start(t)
	pid := s.envoy.PID()

	// Streams for a name of the API server, for a name with a separate upstream, and on other ports.
	streams := []*stream{
		s.startStream(t, 443, hello{sni: s.in("api")}, "kube-apiserver"),
		s.startStream(t, 443, hello{sni: s.routeHost("registry")}, "registry"),
		s.startStream(t, 8091, hello{sni: s.in("konnectivity")}, "konnectivity-server"),
		s.startStream(t, 7443, hello{sni: s.in("swap")}, "two"),
	}
	for round := range 8 {
		added := s.in(fmt.Sprintf("r%d.more", round))
		for _, target := range []*lab.Backend{one, two} {
			s.update(t, with(s.backend("more", added, target.Name(), "")))
			s.await(t, 443, hello{sni: added}, target.Name())
		}
		s.update(t, with()) // the removed name leads to the API server, like any unknown name
		s.await(t, 443, hello{sni: added, verify: "kubernetes"}, "kube-apiserver")
		swapped, address, shop := two, s.IP(41), "apps-next"
		if round%2 == 1 {
			swapped, address, shop = one, s.IP(40), "apps"
		}
		s.update(t, lab.Endpoints(apps, "swap", swapped.Addr()))
		s.await(t, 443, hello{sni: s.in("swap")}, swapped.Name())
		s.infra.apps = s.static(address, "")
		s.update(t, s.infraYAML())
		s.await(t, 443, hello{sni: s.in("shop.apps")}, shop)
		s.update(t, s.route("new", "routed"))
		s.await(t, 443, hello{sni: s.routeHost("new")}, "routed")
		s.remove(t, s.route("new", "routed"))
		s.await(t, 443, hello{sni: s.routeHost("new"), verify: "kubernetes"}, "kube-apiserver")
	}
	updates := func() (modified, inPlace uint64) {
		stats, err := s.envoy.Stats(t.Context())
		lab.Must(t, err)
		return stats["listener_manager.listener_modified"], stats["listener_manager.listener_in_place_updated"]
	}
	tcp := func(name string, port int) string { return s.backendOn(port, "TCP", name, s.in(name), "one", 443, "") }
	for _, added := range [][]string{{tcp("first", 7443)}, {tcp("first", 7443), tcp("second", 7443)}, {tcp("beside", 8091)}, nil} {
		before, _ := updates()
		s.update(t, with(added...))
		lab.Poll(t, "Envoy to update the listeners", func() bool { now, _ := updates(); return now > before })
		if name, err := s.reach(t, 8091, hello{verify: s.in("konnectivity")}); err != nil || name != "konnectivity-server" {
			t.Errorf("with %q, port 8091 without SNI leads to %q, want konnectivity-server: %v", added, name, err)
		}
	}
	if modified, inPlace := updates(); modified != inPlace || s.envoy.PID() != pid {
		t.Errorf("a listener was replaced, or Envoy restarted: %d listeners modified, %d in place", modified, inPlace)
	}
	for _, st := range streams {
		st.end(t)
	}
}

func TestBackendsAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	apps := "apps-" + s.name
	late := s.ca.TLSBackend(t, s.at6(21, 8443), "late", s.in("late"), s.in("also"), s.in("any.thing"))
	unknown := func(label string) hello { return hello{sni: s.in(label), verify: "kubernetes"} }

	// The backend is created before its Service, and the Service before its endpoints.
	s.update(t, s.proxyServer(fmt.Sprintf("{name: late, hostname: %q, alternateHostnames: [%q, %q], port: 443, targetSelector: {matchLabels: {app: late}}, targetPort: https, targetNamespace: %s}",
		s.in("late"), s.in("ALSO"), s.in("*.thing"), apps)))
	s.awaitClosed(t, "a backend without a Service", unknown("late"))
	slice := strings.Replace(lab.Endpoints(apps, "late", late.Addr()), `name: ""`, "name: https", 1)
	s.update(t, "apiVersion: v1\nkind: Service\nmetadata: {name: late, namespace: "+apps+", labels: {app: late}}\nspec: {ports: [{name: https, port: 8443}]}\n---\n", slice)
	for _, label := range []string{"late", "also", "any.thing"} {
		s.await(t, 443, hello{sni: s.in(label)}, "late")
	}
	s.remove(t, slice)
	s.awaitClosed(t, "a Service without endpoints", hello{sni: s.in("late")})

	// Connections without TLS are forwarded to the port's only backend. A client may wait for the server, or send too
	// little to distinguish it from TLS. With two backends on the port, the target is ambiguous.
	plain := lab.TCPBackend(t, s.at(22, 3306), "plain")
	tcp := func(name string) string { return s.backendOn(3306, "TCP", name, s.in(name), "plain", 3306, "") }
	greeting := func(sent string) (name string, err error) {
		conn, err := net.DialTimeout("tcp", s.at(3, 3306), dialTimeout)
		if err != nil {
			return "", err
		}
		defer func() { _ = conn.Close() }()
		if _, err := fmt.Fprint(conn, sent); err != nil {
			return "", err
		}
		return lab.Greeting(t.Context(), conn)
	}
	s.update(t, service(apps, "plain", 3306, plain.Addr()), s.proxyServer(tcp("one")))
	lab.Poll(t, "plain TCP connections to succeed", func() bool { _, err := greeting(""); return err == nil })
	for _, sent := range []string{"hello?\n", "", "hi"} {
		if name, err := greeting(sent); err != nil || name != "plain" {
			t.Errorf("a connection that sends %q reaches %q: %v", sent, name, err)
		}
	}
	s.update(t, s.proxyServer(tcp("one"), tcp("two")))
	lab.Poll(t, "plain TCP connections to be closed", func() bool { _, err := greeting("hello?\n"); return err != nil })

	s.update(t, s.proxyServer())
	for _, label := range []string{"late", "also", "any.thing"} {
		s.await(t, 443, unknown(label), "kube-apiserver")
	}
	s.check(t)
}
