package proxy_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
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
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
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
	for _, protocol := range []string{"udp", "tcp"} {
		lab.RunDNS(t, &dns.Server{Addr: address, Net: protocol, Handler: handler})
	}
}

// ask sends a query on a connection, and returns the name of the server and the address of its client.
func ask(conn *dns.Conn, name string) (server, client string, err error) {
	query := new(dns.Msg).SetQuestion(name+".", dns.TypeTXT)
	query.SetEdns0(4096, false)
	conn.UDPSize = 4096
	if err := errors.Join(conn.SetDeadline(time.Now().Add(2*time.Second)), conn.WriteMsg(query)); err != nil {
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
		return answer(reply)
	}
}

// answer returns the texts of a reply of dnsServer.
func answer(reply *dns.Msg) (server, client string, err error) {
	if len(reply.Answer) == 1 {
		if txt, ok := reply.Answer[0].(*dns.TXT); ok && len(txt.Txt) > 1 {
			return txt.Txt[0], txt.Txt[1], nil
		}
	}
	return "", "", fmt.Errorf("reply %v", reply)
}

func udpConn(t *testing.T, address string) *dns.Conn {
	t.Helper()
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &dns.Conn{Conn: conn}
}

// mustAsk asks until there is a reply: datagrams may be lost while a listener starts.
func mustAsk(t *testing.T, conn *dns.Conn, name string) (server, client string) {
	t.Helper()
	lab.Poll(t, "a reply for "+name, func() (ok bool) {
		var err error
		server, client, err = ask(conn, name)
		return err == nil
	})
	return server, client
}

// udpBackend returns an entry of spec.backends with the protocol UDP, whose Service has the same port.
func (s *site) udpBackend(name, service string, port int, more string) string {
	return fmt.Sprintf("{name: %s, hostname: %s.%s, port: %d, targetService: %s, targetPort: %[4]d, targetNamespace: apps-%[6]s, protocol: UDP%[7]s}",
		name, name, s.domain, port, service, s.name, more)
}

// dnsService returns a Service with the port 53 of UDP and of TCP, and its EndpointSlice.
func (s *site) dnsService(hosts ...int) string {
	targets := ""
	for _, host := range hosts {
		targets += fmt.Sprintf("\n- {addresses: [%s], conditions: {ready: true}}", s.ip(host))
	}
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
endpoints: %[2]s
---
`, s.name, strings.TrimSuffix(targets+" []", strings.Repeat(" []", min(1, len(hosts)))))
}

// TestDNSOverUDP resolves names through a UDP backend: over both families, in sessions of two clients, with large
// responses, and after its endpoints have changed.
func TestDNSOverUDP(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	s.infra.proxy = ", accessLog: true"
	dnsServer(t, s.at(21, 53), "one")
	dnsServer(t, s.at(22, 53), "two")
	tcp := fmt.Sprintf("{name: dns-tcp, hostname: dns-tcp.%s, port: 53, targetService: dns, targetPort: 53, targetNamespace: apps-%s, protocol: TCP}", s.domain, s.name)
	s.update(t, s.infraYAML()+s.dnsService(21)+s.proxyServer(s.udpBackend("dns", "dns", 53, ", idleTimeout: 5s"), tcp))
	s.start(t)
	before := s.series(t)

	for _, address := range []string{s.at(3, 53), s.at6(3, 53)} {
		if server, _ := mustAsk(t, udpConn(t, address), "a.example.com"); server != "one" {
			t.Errorf("%s leads to %s", address, server)
		}
	}
	overTCP, err := net.Dial("tcp", s.at(3, 53))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = overTCP.Close() })
	_ = overTCP.SetDeadline(time.Now().Add(dialTimeout))
	// On a port without a default of the Infra, the proxy waits for a ClientHello; a DNS query is none.
	if server, _, err := askSlowly(&dns.Conn{Conn: overTCP}); err != nil || server != "one" {
		t.Errorf("over TCP: %q, %v", server, err)
	}

	// Each client keeps its session: the server sees one address for each.
	first, second := udpConn(t, s.at(3, 53)), udpConn(t, s.at(3, 53))
	_, one := mustAsk(t, first, "a.example.com")
	_, two := mustAsk(t, second, "a.example.com")
	if one == two {
		t.Errorf("both clients have the address %s", one)
	}
	for range 5 {
		if _, again := mustAsk(t, first, "b.example.com"); again != one {
			t.Errorf("the first client has address %s, then %s", one, again)
		}
	}
	if server, _, err := ask(first, "3800.example.com"); err != nil || server != "one" {
		t.Errorf("a response of 3,800 bytes: %q, %v", server, err)
	}

	s.update(t, s.dnsService(22))
	lab.Poll(t, "new sessions to lead to the new endpoint", func() bool {
		server, _, err := ask(udpConn(t, s.at(3, 53)), "a.example.com")
		return err == nil && server == "two"
	})
	lab.Poll(t, "the session of a client to follow to the new endpoint", func() bool {
		server, _, err := ask(first, "a.example.com")
		return err == nil && server == "two"
	})

	after := s.series(t)
	name := fmt.Sprintf(`{port="53",tenant="clusters/%s",server_name="dns.%s"}`, s.name, s.domain)
	for stat, atLeast := range map[string]float64{
		"total": 4, "rx_datagrams": 10, "tx_datagrams": 10, "rx_bytes": 300, "tx_bytes": 3800,
	} {
		if got := after["envoy_udp_downstream_sess_"+stat+name]; got < atLeast {
			t.Errorf("envoy_udp_downstream_sess_%s is %v, want at least %v", stat, got, atLeast)
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("sessions have changed the series (-before +after):\n%s", diff)
	}
	lab.Poll(t, "a session in the access log", func() bool {
		for line := range strings.Lines(s.envoy.Logs()) {
			if strings.Contains(line, `"log":"session"`) && strings.Contains(line, "dns."+s.domain) &&
				strings.Contains(line, s.at(21, 53)) && !strings.Contains(line, `"received":null`) && !strings.Contains(line, `"received":"-"`) {
				t.Log(line)
				return true
			}
		}
		return false
	})
	lab.Poll(t, "the listener to be ready in status", func() bool {
		return slices.Contains(s.replica(t).Listeners, v1alpha1.ListenerStatus{Port: 53, Ready: true})
	})
}

// askSlowly is ask with the time that the proxy waits for a ClientHello.
func askSlowly(conn *dns.Conn) (server, client string, err error) {
	query := new(dns.Msg).SetQuestion("a.example.com.", dns.TypeTXT)
	if err := conn.WriteMsg(query); err != nil {
		return "", "", err
	}
	reply, err := conn.ReadMsg()
	if err != nil {
		return "", "", err
	}
	return answer(reply)
}

// ntpServer starts a server that replies to NTP requests (RFC 5905) with its stratum.
func ntpServer(t *testing.T, address string, stratum byte) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		packet := make([]byte, 1500)
		for {
			n, client, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if n < 48 || packet[0]&7 != 3 { // mode 3 is a client
				continue
			}
			reply := make([]byte, 48)
			reply[0], reply[1] = packet[0]&0x38|4, stratum
			copy(reply[24:32], packet[40:48]) // origin timestamp
			binary.BigEndian.PutUint32(reply[40:], uint32(time.Now().Unix()+2208988800))
			_, _ = conn.WriteTo(reply, client)
		}
	}()
	return netip.MustParseAddrPort(address)
}

// TestNTPOverUDP synchronizes with a server through a UDP backend, with a limit of sessions, after which a new client gets
// no reply until a session has ended.
func TestNTPOverUDP(t *testing.T) {
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	server := ntpServer(t, s.at(21, 123), 2)
	s.update(t, strings.ReplaceAll(service("apps-"+s.name, "ntp", 123, server), "port: 123}", "port: 123, protocol: UDP}"))
	s.update(t, strings.ReplaceAll(endpoints("apps-"+s.name, "ntp", server), "TCP", "UDP")+
		s.proxyServer(s.udpBackend("ntp", "ntp", 123, ", idleTimeout: 4s, maxConnections: 2")))
	s.start(t)
	query := func(conn net.Conn) error {
		request := make([]byte, 48)
		request[0] = 4<<3 | 3 // version 4, client
		copy(request[40:48], "oooitest")
		if err := errors.Join(conn.SetDeadline(time.Now().Add(time.Second)), func() error { _, err := conn.Write(request); return err }()); err != nil {
			return err
		}
		reply := make([]byte, 100)
		n, err := conn.Read(reply)
		if err != nil {
			return err
		}
		if n != 48 || reply[1] != 2 || string(reply[24:32]) != "oooitest" {
			return fmt.Errorf("reply %x", reply[:n])
		}
		return nil
	}
	dial := func() net.Conn {
		conn, err := net.Dial("udp", s.at(3, 123))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	first, second, third := dial(), dial(), dial()
	lab.Poll(t, "a reply", func() bool { return query(first) == nil })
	if err := query(second); err != nil {
		t.Error(err)
	}
	if err := errors.Join(query(first), query(second)); err != nil {
		t.Error(err)
	}
	if err := query(third); err == nil {
		t.Error("a third session was accepted")
	}
	overflow := fmt.Sprintf(`envoy_cluster_upstream_cx_overflow{envoy_cluster_name="proxy/clusters/%s/ntp"}`, s.name)
	if n := s.series(t)[overflow]; n == 0 {
		t.Errorf("%s is 0", overflow)
	}
	lab.Poll(t, "the sessions to end", func() bool { return query(third) == nil })
}
