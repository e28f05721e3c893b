package proxy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/test/lab"
)

// outsideDNS is an upstream resolver with names outside of the cluster, all below outside.example.com.
type outsideDNS struct {
	mu sync.Mutex
	// records are the data of records, "TYPE DATA", by name below outside.example.com. "|" separates successive answers, of
	// which the last one stays. A name with the only record "silence" gets no answer.
	records map[string][]string
}

const outside = ".outside.example.com"

func (d *outsideDNS) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	reply := new(dns.Msg).SetReply(q)
	name := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(q.Question[0].Name), "."), outside)
	list, known := d.records[name]
	if slices.Equal(list, []string{"silence"}) {
		return
	}
	if !known {
		reply.Rcode = dns.RcodeNameError
	}
	if at := slices.Index(list, "|"); at >= 0 {
		d.records[name], list = list[at+1:], list[:at]
	}
	for _, data := range list {
		owner := q.Question[0].Name
		if to, found := strings.CutPrefix(data, "via "); found { // behind an alias
			alias, rest, _ := strings.Cut(to, " ")
			rr, _ := dns.NewRR(fmt.Sprintf("%s 1 IN CNAME %s", owner, alias))
			reply.Answer = append(reply.Answer, rr)
			owner, data = alias, rest
		}
		if rr, err := dns.NewRR(fmt.Sprintf("%s 1 IN %s", owner, data)); err == nil && rr.Header().Rrtype == q.Question[0].Qtype {
			reply.Answer = append(reply.Answer, rr)
		}
	}
	_ = w.WriteMsg(reply) // the client may have gone
}

// set changes the records of a name.
func (d *outsideDNS) set(name string, records ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records[name] = records
}

// startEgress starts a site whose Infra has egress with these fields, and a resolver and a server outside.
func startEgress(t *testing.T, fields string) (*site, *outsideDNS) {
	t.Helper()
	s := newSite(t)
	d := s.startOutside(t)
	s.update(t, s.objects(), s.egress(fields))
	s.start(t)
	return s, d
}

// startOutside starts a resolver and a server outside.
func (s *site) startOutside(t *testing.T) *outsideDNS {
	t.Helper()
	d := &outsideDNS{records: map[string][]string{
		"registry": {"A " + s.outside(1)}, "a.cdn": {"A " + s.outside(1)}, "other": {"A " + s.outside(1)},
	}}
	lab.ServeDNS(t, s.outside(53)+":53", d.ServeDNS)
	s.ca.TLSBackend(t, s.outside(1)+":443", "outside", "*"+outside, "*.cdn"+outside)
	s.flags = append(s.flags, "--egress-resolver", strings.Replace(string(s.xdsd.Pages), ":9902", ":9953", 1))
	return d
}

// egress returns the Infra with these fields of egress, which allow the addresses outside, and more networks.
func (s *site) egress(fields string, more ...string) string {
	allow, err := json.Marshal(append(more, s.outside(0)+"/24"))
	if err != nil {
		panic(err) // impossible
	}
	return lab.Merge(s.infraYAML(), fmt.Sprintf("spec: {egress: {%s, allowAddresses: %s}, networkConfig: {dnsServers: [%s]}}", fields, allow, s.outside(53)))
}

// outside returns an address outside of the VLAN.
func (s *site) outside(host int) string {
	return strings.Replace(s.IP(host), "198.18.", "198.19.", 1)
}

// TestEgressByName checks that listed names lead outside, and others do not.
func TestEgressByName(t *testing.T) {
	s, _ := startEgress(t, `hosts: [registry.outside.example.com, "*.cdn.outside.example.com", gone.outside.example.com]`)
	s.ca.TLSBackend(t, s.IP(11)+":6443", "api", s.in("api"))
	s.update(t, service(s.ControlPlaneNamespace(), "kube-apiserver", 6443, netip.MustParseAddrPort(s.IP(11)+":6443")))
	s.await(t, 443, hello{sni: "registry" + outside}, "outside")
	s.await(t, 443, hello{sni: s.in("api")}, "api")
	for name, want := range map[string]string{
		"a.cdn" + outside:   "outside",
		s.in("api"):         "api",
		"gone" + outside:    "", // does not exist
		"cdn" + outside:     "", // not below itself
		"b.other" + outside: "",
	} {
		if got, err := s.reach(t, 443, hello{sni: name}); got != want {
			t.Errorf("%s leads to %q, %v, want %q", name, got, err, want)
		}
	}
}

// TestEgressIsAudited checks what xdsd reports about connections and requests: to names that are listed, that do not resolve,
// without a server, and not listed.
func TestEgressIsAudited(t *testing.T) {
	s, d := startEgress(t, `hosts: [registry.outside.example.com, "*.cdn.outside.example.com", gone.outside.example.com, silent.outside.example.com], ports: [80, 443, 8443]`)
	d.mu.Lock()
	d.records["silent"] = []string{"A " + s.outside(77)}
	d.mu.Unlock()
	s.await(t, 443, hello{sni: "registry" + outside}, "outside")
	for _, to := range []struct {
		port int
		name string
	}{
		{443, "a.cdn" + outside}, {443, "a.cdn" + outside}, {443, "gone" + outside}, {443, "silent" + outside},
		{443, "to-default" + outside}, {8443, "other" + outside}, {443, ""}, // the last one is for the API server
	} {
		_, _ = s.reach(t, to.port, hello{sni: to.name}) // the report has the result
	}
	for _, host := range []string{"gone" + outside, "plain-other" + outside} {
		conn, err := net.Dial("tcp", s.at(3, 80))
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, conn, "GET", host, "/")
		_ = conn.Close()
	}
	const unlisted = "no route has the name on this port"
	want := []audit.Entry{
		{Name: "a.cdn" + outside, Host: "*.cdn" + outside, Connections: 2},
		{Name: "gone" + outside, Host: "gone" + outside, Connections: 2, Failures: 2, Failure: "the name does not resolve to a permitted address"},
		{Name: "other" + outside, Connections: 1, Failures: 1, Failure: unlisted},
		{Name: "plain-other" + outside, Connections: 1, Failures: 1, Failure: unlisted},
		{Name: "registry" + outside, Host: "registry" + outside, Connections: 1},
		{Name: "silent" + outside, Host: "silent" + outside, Connections: 1, Failures: 1, Failure: "delayed connect error: Connection refused"},
		{Name: "to-default" + outside, Connections: 1, Failures: 1, Failure: unlisted}, // the default is the API server
	}
	lab.Await(t, "the report of xdsd", func() string {
		_, body := s.xdsd.Get(t, audit.Path)
		var r audit.Report
		if err := json.Unmarshal(body, &r); err != nil {
			return err.Error()
		}
		for i := range r.Entries {
			e := &r.Entries[i]
			if served := e.Host != "" && e.Failures == 0; served != (e.Sent > 1000 && e.Received > 1000) {
				return fmt.Sprintf("%s: %d bytes sent, %d received", e.Name, e.Sent, e.Received)
			}
			*e = audit.Entry{Name: e.Name, Host: e.Host, Connections: e.Connections, Failures: e.Failures, Failure: e.Failure}
		}
		return cmp.Diff(want, r.Entries, cmpopts.EquateComparable(netip.Addr{}))
	})
	_, metrics := s.xdsd.Get(t, "/metrics")
	for _, line := range []string{
		`xdsd_egress_connections_total{host="*.cdn.outside.example.com",result="ok"} 2`, `xdsd_egress_client_connections_total{client="` + s.IP(3) + `",result="failed"} 3`,
		"xdsd_egress_unlisted_total 3",
	} {
		if !strings.Contains(string(metrics), line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
}

// TestEgressRefusesClusterAddresses lets names resolve to addresses that clients must not reach.
func TestEgressRefusesClusterAddresses(t *testing.T) {
	s, d := startEgress(t, `hosts: ["*.outside.example.com"]`)
	inside := s.IP(40)
	for _, address := range []string{inside + ":443", s.at6(40, 443), "127.0.0.1:443"} {
		s.ca.TLSBackend(t, address, "inside", "*"+outside)
	}
	s.await(t, 443, hello{sni: "registry" + outside}, "outside")
	closed, open := "A "+s.outside(9), "A "+s.outside(1)
	d.mu.Lock()
	maps.Copy(d.records, map[string][]string{
		"vlan": {"A " + inside}, "vlan6": {"AAAA " + s.net6 + "40"}, "loopback": {"A 127.0.0.1"}, "any": {"A 0.0.0.0"},
		"private": {"A 10.0.0.1"}, "metadata": {"A 169.254.169.254"}, "second": {closed, "A " + inside}, "mapped": {"AAAA ::ffff:" + inside},
		"translated": {"AAAA 64:ff9b::" + inside}, "alias": {"via vlan.example.net. A " + inside}, "loopback6": {"AAAA ::1"},
		"first": {"A " + inside, open}, "later": {open, "|", "A " + inside},
	})
	d.mu.Unlock()
	for _, name := range []string{
		"vlan", "vlan6", "loopback", "any", "private", "metadata", "second", "mapped", "translated", "alias", "loopback6",
	} {
		if got, err := s.reach(t, 443, hello{sni: name + outside}); err == nil {
			t.Errorf("%s leads to %q", name, got)
		}
	}
	if got, err := s.reach(t, 443, hello{sni: "first" + outside}); got != "outside" {
		t.Errorf("a name with one address inside and one outside leads to %q, %v", got, err)
	}
	// Envoy keeps the last good address of a name that moves inside.
	lab.Poll(t, "the resolver to answer with the address inside", func() bool {
		if got, err := s.reach(t, 443, hello{sni: "later" + outside}); got == "inside" {
			t.Fatal("a name that moves inside leads there", err)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return !slices.Contains(d.records["later"], "|")
	})
	for range 20 {
		if got, _ := s.reach(t, 443, hello{sni: "later" + outside}); got == "inside" {
			t.Fatal("a name that moves inside leads there")
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestEgressToAllNames allows all names, for TLS and for HTTP. An address in place of a name would bypass the resolver.
func TestEgressToAllNames(t *testing.T) {
	s, _ := startEgress(t, `hosts: ["*"], allowAll: true, ports: [80, 443]`)
	inside := s.IP(40)
	s.ca.TLSBackend(t, inside+":443", "inside", "*"+outside)
	for address, body := range map[string]string{s.outside(1): "outside", inside: "inside"} {
		httpServer(t, address+":80", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })
	}
	s.await(t, 443, hello{sni: "registry" + outside}, "outside")
	s.ca.TLSBackend(t, "127.0.0.1:443", "inside", "*.localhost", "localhost")
	for _, name := range []string{"a.localhost", "A.B.LocalHost"} { // which Envoy resolves itself
		if got, err := s.reach(t, 443, hello{sni: name}); err == nil {
			t.Errorf("%s leads to %q", name, got)
		}
	}
	for _, literal := range []string{inside, inside + ".", "::ffff:" + inside, "a.localhost."} {
		data := bytes.Replace(lab.ClientHello(t, strings.Repeat("a", len(literal)-2)+".b"), []byte(strings.Repeat("a", len(literal)-2)+".b"), []byte(literal), 1)
		if answer := s.send(t, 443, data); len(answer) > 0 {
			t.Errorf("the SNI %s leads to a server", literal)
		}
	}
	for host, want := range map[string]string{"registry" + outside: "200 outside", "REGISTRY" + outside + ":80": "200 outside", inside: "403 ", inside + ":80": "403 ", "a.LocalHost:80": "403 "} {
		lab.Await(t, "the answer of Host "+host, func() string {
			conn, err := net.Dial("tcp", s.at(3, 80))
			if err != nil {
				return err.Error()
			}
			defer func() { _ = conn.Close() }()
			if status, body := exchange(t, conn, "GET", host, "/"); fmt.Sprint(status, " ", body) != want {
				return fmt.Sprint(status, " ", body)
			}
			return ""
		})
	}
}

// send sends data to a port, and returns what the other end sends until it closes the connection or is silent for a second.
func (s *site) send(t *testing.T, port int, data []byte) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", s.at(3, port))
	lab.Must(t, err)
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write(data) // the other end may close the connection first
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	answer, _ := io.ReadAll(conn)
	return answer
}

// TestEgressByParentProxy reaches names by a proxy that requires credentials, after one whose name the resolver does not answer. The
// name may resolve to any address, here one on the VLAN.
func TestEgressByParentProxy(t *testing.T) {
	t.Setenv("OOOI_PARENT_PROXY_AUTHORIZATION", "Basic dTpw")
	requests := make(chan string, 10)
	s, d := startEgress(t, "hosts: [registry.outside.example.com, absent.outside.example.com]")
	d.mu.Lock()
	d.records["parent"], d.records["silent"] = []string{"A " + s.IP(43)}, []string{"silence"}
	d.mu.Unlock()
	lab.ConnectProxy(t, s.IP(43)+":3128", func(r *http.Request) string {
		requests <- r.Method + " " + r.Host + " " + r.Header.Get("Proxy-Authorization")
		if !strings.HasPrefix(r.Host, "registry") {
			return ""
		}
		return s.outside(1) + ":443"
	})
	s.await(t, 443, hello{sni: "registry" + outside}, "outside")
	for _, parent := range []string{"silent" + outside, s.IP(43), "silent" + outside, "parent" + outside} {
		s.update(t, lab.Merge(s.infraYAML(), fmt.Sprintf(
			"spec: {networkConfig: {dnsServers: [%s]}, egress: {hosts: [registry.outside.example.com, absent.outside.example.com], "+
				"parentProxy: {url: 'http://%s:3128', secretRef: {name: parent}}}}", s.outside(53), parent)))
		lab.Poll(t, "connections by the parent proxy "+parent, func() bool {
			got, _ := s.reach(t, 443, hello{sni: "registry" + outside})
			if parent == "silent"+outside {
				return got == ""
			}
			return got == "outside" && len(requests) > 0
		})
	}
	if got, want := <-requests, "CONNECT registry.outside.example.com:443 Basic dTpw"; got != want {
		t.Errorf("the parent proxy got %q, want %q", got, want)
	}
	if got, err := s.reach(t, 443, hello{sni: "absent" + outside}); err == nil {
		t.Errorf("a name that the parent proxy refuses leads to %q", got)
	}
}

// TestEgressRefusesQUIC sends a datagram to port 443, which must fail at once, so that clients of HTTP/3 use TCP.
func TestEgressRefusesQUIC(t *testing.T) {
	s, _ := startEgress(t, "hosts: [registry.outside.example.com]")
	s.await(t, 443, hello{sni: "registry" + outside}, "outside")
	conn, err := net.Dial("udp", s.at(3, 443))
	lab.Must(t, err)
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte{0xc0}); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("an answer or silence: %v", err)
	}
}
