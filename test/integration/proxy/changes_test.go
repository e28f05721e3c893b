package proxy_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

func TestChangesKeepOtherConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	in := func(label string) string { return label + "." + s.domain }
	one := s.ca.TLSBackend(t, s.at(21, 443), "one", in("*.more"), in("swap"))
	two := s.ca.TLSBackend(t, s.at(22, 443), "two", in("*.more"), in("swap"))
	routed := s.ca.TLSBackend(t, s.at(23, 443), "routed", s.routeHost("new"))
	s.ca.TLSBackend(t, s.at(41, 443), "apps-next", in("shop.apps"))
	apps := "apps-" + s.name
	swap := s.backend("swap", in("swap"), "swap", "")
	s.update(t, service(apps, "one", 443, one.Addr())+service(apps, "two", 443, two.Addr())+service(apps, "swap", 443, one.Addr())+
		service(s.namespace(), "routed", 443, routed.Addr())+s.proxyServer(swap))
	s.start(t)
	pid := s.envoy.PID()

	// Streams of a name of the API server, of a name with an upstream of its own, and on another port.
	streams := []*stream{
		s.startStream(t, 443, hello{sni: in("api")}, "kube-apiserver"),
		s.startStream(t, 443, hello{sni: s.routeHost("registry")}, "registry"),
		s.startStream(t, 8091, hello{sni: in("konnectivity")}, "konnectivity-server"),
	}
	started, changes := time.Now(), 0
	change := func(yaml string, label string, want string) {
		t.Helper()
		s.update(t, yaml)
		s.await(t, 443, hello{sni: label}, want)
		changes++
	}
	for round := 0; changes < 200; round++ {
		added := in(fmt.Sprintf("r%d.more", round))
		change(s.proxyServer(swap, s.backend("more", added, "one", "")), added, "one")
		change(s.proxyServer(swap, s.backend("more", added, "two", "")), added, "two")
		s.update(t, s.proxyServer(swap)) // the removed name leads to the API server, like any unknown name
		s.await(t, 443, hello{sni: added, verify: "kubernetes"}, "kube-apiserver")
		changes++
		swapped, address, shop := two, s.ip(41), "apps-next"
		if round%2 == 1 {
			swapped, address, shop = one, s.ip(40), "apps"
		}
		change(endpoints(apps, "swap", swapped.Addr()), in("swap"), swapped.Name())
		s.infra.apps = fmt.Sprintf("{enabled: true, source: Static, addresses: [%s]}", address)
		change(s.infraYAML(), in("shop.apps"), shop)
		change(s.route("new", "routed"), s.routeHost("new"), "routed")
		s.remove(t, s.route("new", "routed"))
		s.await(t, 443, hello{sni: s.routeHost("new"), verify: "kubernetes"}, "kube-apiserver")
		changes++
	}
	t.Logf("%d changes, each served before the next one, within %s", changes, time.Since(started).Round(time.Millisecond))
	for _, st := range streams {
		st.end(t)
	}
	if s.envoy.PID() != pid {
		t.Error("Envoy was restarted")
	}
}

func TestBackendsAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.start(t)
	apps := "apps-" + s.name
	in := func(label string) string { return label + "." + s.domain }
	late := s.ca.TLSBackend(t, s.at6(21, 8443), "late", in("late"), in("also"), in("any.thing"))
	unknown := func(label string) hello { return hello{sni: in(label), verify: "kubernetes"} }

	// The backend is created before its Service, and the Service before its endpoints.
	backend := fmt.Sprintf("{name: late, hostname: %q, alternateHostnames: [%q, %q], port: 443, targetSelector: {matchLabels: {app: late}}, targetPort: https, targetNamespace: %s}",
		in("late"), in("ALSO"), in("*.thing"), apps)
	s.update(t, s.proxyServer(backend))
	lab.Poll(t, "connections to a backend without a Service to be closed", func() bool {
		_, err := s.reach(t, 443, unknown("late"))
		return err != nil
	})
	labelled := "apiVersion: v1\nkind: Service\nmetadata: {name: late, namespace: " + apps + ", labels: {app: late}}\nspec: {ports: [{name: https, port: 8443}]}\n---\n"
	slice := func(targets ...netip.AddrPort) string {
		return named(endpoints(apps, "late", targets...), "https")
	}
	s.update(t, labelled+slice(late.Addr()))
	for _, label := range []string{"late", "also", "any.thing"} {
		s.await(t, 443, hello{sni: in(label)}, "late")
	}
	s.remove(t, slice(late.Addr()))
	lab.Poll(t, "connections to a Service without endpoints to be closed", func() bool {
		_, err := s.reach(t, 443, hello{sni: in("late")})
		return err != nil
	})
	s.update(t, s.proxyServer())
	for _, label := range []string{"late", "also", "any.thing"} {
		s.await(t, 443, unknown(label), "kube-apiserver")
	}
	s.check(t)
}

func TestPlainTCPLeadsToTheOnlyBackendOfAPort(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	plain := lab.TCPBackend(t, s.at(21, 3306), "plain")
	backend := func(name string) string {
		return fmt.Sprintf("{name: %s, hostname: %[1]s.%s, port: 3306, targetService: plain, targetPort: 3306, targetNamespace: apps-%s}", name, s.domain, s.name)
	}
	s.update(t, service("apps-"+s.name, "plain", 3306, plain.Addr())+s.proxyServer(backend("one")))
	s.start(t)
	greeting := func(sent string) (string, error) {
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
	// A client that waits for the server sends nothing, or too little to distinguish it from TLS.
	for _, sent := range []string{"hello?\n", "", "hi"} {
		if name, err := greeting(sent); err != nil || name != "plain" {
			t.Errorf("a connection that sends %q reaches %q: %v", sent, name, err)
		}
	}
	// With two backends on the port it is ambiguous.
	s.update(t, s.proxyServer(backend("one"), backend("two")))
	lab.Poll(t, "plain TCP connections to be closed", func() bool {
		_, err := greeting("hello?\n")
		return err != nil
	})
}

// TestBackendsDoNotReplaceAListener adds and removes backends of each protocol on ports with open
// connections. Envoy updates the filter chains of a listener in place; replacing a listener would close all
// of its connections after the drain time, for which the test does not wait.
func TestBackendsDoNotReplaceAListener(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	apps := "apps-" + s.name
	in := func(label string) string { return label + "." + s.domain }
	tls := s.ca.TLSBackend(t, s.at(21, 7443), "tls", in("tls"), in("konnectivity"))
	plain := lab.TCPBackend(t, s.at(22, 7443), "plain")
	backend := func(name, protocol, service string, port int) string {
		return fmt.Sprintf("{name: %s, hostname: %s, port: %d, protocol: %s, targetService: %s, targetPort: 7443, targetNamespace: %s}",
			name, in(name), port, protocol, service, apps)
	}
	first := []string{backend("tls", "TLS", "tls", 7443)}
	s.update(t, service(apps, "tls", 7443, tls.Addr())+service(apps, "plain", 7443, plain.Addr())+s.proxyServer(first...))
	s.start(t)
	streams := []*stream{
		s.startStream(t, 7443, hello{sni: in("tls")}, "tls"),
		s.startStream(t, 8091, hello{sni: in("konnectivity")}, "konnectivity-server"),
	}
	updates := func() (modified, inPlace uint64) {
		stats, err := s.envoy.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats["listener_manager.listener_modified"], stats["listener_manager.listener_in_place_updated"]
	}
	for i, added := range [][]string{
		{backend("one", "TCP", "plain", 7443)},
		{backend("one", "TCP", "plain", 7443), backend("two", "TCP", "plain", 7443)},
		{backend("beside", "TCP", "plain", 8091)},
		nil,
	} {
		before, _ := updates()
		s.update(t, s.proxyServer(append(slices.Clone(first), added...)...))
		lab.Poll(t, "Envoy to update the listeners", func() bool { now, _ := updates(); return now > before })
		if modified, inPlace := updates(); modified != inPlace {
			t.Errorf("change %d replaced a listener: %d modified, %d in place", i, modified, inPlace)
		}
		if name, err := s.reach(t, 8091, hello{verify: "konnectivity." + s.domain}); err != nil || name != "konnectivity-server" {
			t.Errorf("change %d: port 8091 without SNI leads to %q, want konnectivity-server: %v", i, name, err)
		}
	}
	for _, st := range streams {
		st.end(t)
	}
}
