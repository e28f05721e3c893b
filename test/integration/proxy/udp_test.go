package proxy_test

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// dnsServer starts a DNS server on an address, over UDP and TCP. Its answer to every query for TXT is the address of the
// client that it sees, after its name; it is padded to the size in the name, as in "2000.example.com".
func dnsServer(t *testing.T, address, name string) {
	t.Helper()
	lab.ServeDNS(t, address, func(w dns.ResponseWriter, query *dns.Msg) {
		reply := new(dns.Msg).SetReply(query)
		question := query.Question[0].Name
		text := []string{name, w.RemoteAddr().String()}
		var size int
		if n, _ := fmt.Sscanf(question, "%d.", &size); n == 1 {
			for range size / 200 {
				text = append(text, strings.Repeat("x", 200))
			}
		}
		reply.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: question, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: text}}
		_ = w.WriteMsg(reply) // the client reports a missing reply
	})
}

// ask sends a query on a connection, and returns the name of the server and the address of its client.
func ask(conn *dns.Conn, name string, timeout time.Duration) (server, client string, err error) {
	query := new(dns.Msg).SetQuestion(name+".", dns.TypeTXT)
	query.SetEdns0(4096, false)
	conn.UDPSize = 4096
	if err := errors.Join(conn.SetDeadline(time.Now().Add(timeout)), conn.WriteMsg(query)); err != nil {
		return "", "", err
	}
	for {
		reply, err := conn.ReadMsg()
		if err != nil {
			return "", "", err
		}
		if reply.Id != query.Id { // of an earlier query
			continue
		}
		if len(reply.Answer) == 1 {
			if txt, ok := reply.Answer[0].(*dns.TXT); ok && len(txt.Txt) > 1 {
				return txt.Txt[0], txt.Txt[1], nil
			}
		}
		return "", "", fmt.Errorf("reply %v", reply)
	}
}

func dnsConn(t *testing.T, network, address string) *dns.Conn {
	t.Helper()
	conn, err := net.Dial(network, address)
	lab.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &dns.Conn{Conn: conn}
}

// mustAsk asks until there is a reply of a server: datagrams may be lost while a listener starts.
func mustAsk(t *testing.T, conn *dns.Conn, name, want string) (client string) {
	t.Helper()
	lab.Await(t, "a reply for "+name, func() string {
		server, from, err := ask(conn, name, 2*time.Second)
		if err != nil || server != want {
			return fmt.Sprintf("got one of %q, %v, want %s", server, err, want)
		}
		client = from
		return ""
	})
	return client
}

// dnsService returns a Service with the port 53 of UDP and of TCP, and its EndpointSlice.
func (s *site) dnsService(host int) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: apps-%[1]s}
spec: {ports: [{name: dns-tcp, port: 53}, {name: dns, port: 53, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: dns-1, namespace: apps-%[1]s, labels: {kubernetes.io/service-name: dns}}
addressType: IPv4
ports: [{name: dns-tcp, port: 53, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
endpoints: [{addresses: [%[2]s], conditions: {ready: true}}]
---
`, s.name, s.IP(host))
}

// dnsBackend returns an entry of spec.backends for dnsService.
func (s *site) dnsBackend(port int, protocol, name, more string) string {
	return s.backendOn(port, protocol, name, s.in(name), "dns", 53, more)
}

// TestDNSOverUDP resolves names through a UDP backend: over both families, in sessions of two clients, with large
// responses, with a limit of sessions, and after its endpoints have changed.
func TestDNSOverUDP(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.infra.proxy = ", accessLog: true"
	dnsServer(t, s.at(21, 53), "one")
	dnsServer(t, s.at(22, 53), "two")
	s.update(t, s.infraYAML(), s.dnsService(21), s.proxyServer(s.dnsBackend(53, "UDP", "dns", ", idleTimeout: 5s"), s.dnsBackend(53, "TCP", "dns-tcp", ""),
		s.dnsBackend(54, "UDP", "limited", ", idleTimeout: 4s, maxConnections: 2")))
	s.start(t)
	before := s.series(t)

	// On a port without a default of the Infra, the proxy waits for a ClientHello; a DNS query is none.
	if server, _, err := ask(dnsConn(t, "tcp", s.at(3, 53)), "a.example.com", dialTimeout); err != nil || server != "one" {
		t.Errorf("over TCP: %q, %v", server, err)
	}
	mustAsk(t, dnsConn(t, "udp", s.at6(3, 53)), "a.example.com", "one")
	// Each client keeps its session: the server sees one address for each.
	first, second := dnsConn(t, "udp", s.at(3, 53)), dnsConn(t, "udp", s.at(3, 53))
	one, two := mustAsk(t, first, "a.example.com", "one"), mustAsk(t, second, "a.example.com", "one")
	if one == two {
		t.Errorf("both clients have the address %s", one)
	}
	for range 5 {
		if again := mustAsk(t, first, "3800.example.com", "one"); again != one {
			t.Errorf("the first client has address %s, then %s", one, again)
		}
	}

	t.Run("limit of sessions", s.testSessionLimit)
	s.update(t, s.dnsService(22))
	lab.Poll(t, "new sessions to lead to the new endpoint", func() bool {
		server, _, err := ask(dnsConn(t, "udp", s.at(3, 53)), "a.example.com", 2*time.Second)
		return err == nil && server == "two"
	})
	mustAsk(t, first, "a.example.com", "two")

	after := s.series(t)
	name := fmt.Sprintf(`{port="53",tenant="clusters/%s",server_name="%s"}`, s.name, s.in("dns"))
	for stat, atLeast := range map[string]float64{"total": 4, "rx_datagrams": 10, "tx_datagrams": 10, "rx_bytes": 300, "tx_bytes": 5 * 3800} {
		if got := after["envoy_udp_downstream_sess_"+stat+name]; got < atLeast {
			t.Errorf("envoy_udp_downstream_sess_%s is %v, want at least %v", stat, got, atLeast)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("sessions have changed the series (-before +after):\n%s", diff)
	}
	lab.Poll(t, "a session in the access log", func() bool {
		for line := range strings.Lines(s.envoy.Log.String()) {
			if strings.Contains(line, `"log":"session"`) && strings.Contains(line, s.in("dns")) &&
				strings.Contains(line, s.at(21, 53)) && !strings.Contains(line, `"received":null`) && !strings.Contains(line, `"received":"-"`) {
				return true
			}
		}
		return false
	})
	lab.Poll(t, "the listener to be ready in status", func() bool {
		return slices.Contains(s.replica(t).Listeners, v1alpha1.ListenerStatus{Port: 53, Ready: true})
	})
}

// testSessionLimit begins as many sessions as a backend may have. A new client gets no reply until one has ended.
func (s *site) testSessionLimit(t *testing.T) {
	conn := func() *dns.Conn { return dnsConn(t, "udp", s.at(3, 54)) }
	first, second, third := conn(), conn(), conn()
	for range 2 {
		mustAsk(t, first, "a.example.com", "one")
		mustAsk(t, second, "a.example.com", "one")
	}
	if server, _, err := ask(third, "a.example.com", time.Second); err == nil {
		t.Errorf("%s accepted a third session", server)
	}
	overflow := fmt.Sprintf(`envoy_cluster_upstream_cx_overflow{envoy_cluster_name="proxy/clusters/%s/limited"}`, s.name)
	if n := s.series(t)[overflow]; n == 0 {
		t.Errorf("%s is 0", overflow)
	}
	mustAsk(t, third, "a.example.com", "one")
}

// TestFileDescriptorsLimitConnections gives the proxy few file descriptors, with which Envoy would crash if it had as many
// connections and sessions as configured.
func TestFileDescriptorsLimitConnections(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.report()
	s.descriptors = 1500
	s.update(t, s.objects(), s.dnsService(21), s.proxyServer(s.dnsBackend(53, "UDP", "one", ", maxConnections: 3000"), s.dnsBackend(54, "UDP", "two", ", maxConnections: 1000")))
	s.start(t)
	clusters, err := s.envoy.Get(t.Context(), "/clusters")
	lab.Must(t, err)
	for name, share := range map[string]int{"one": 141, "two": 47} { // of the 188 that 528 connections and 256 descriptors of Envoy leave over
		if want := fmt.Sprintf("proxy/clusters/%s/%s::default_priority::max_connections::%d\n", s.name, name, share); !strings.Contains(string(clusters), want) {
			t.Errorf("no %s in\n%s", want, clusters)
		}
	}
	s.descriptors = 2000
	out, err := s.command(t, "bootstrap", "--proxy-server", "clusters/demo", "--node-id", "a", "--max-connections", "1000").CombinedOutput()
	const want = "MaxConnections: 1000 needs more file descriptors than the limit of 2000 allows; set it to at most 872, or raise the limit"
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("bootstrap prints %q, want %q: %v", out, want, err)
	}
}
