package egress

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
)

// TestResolversAreAskedByTLS asks a resolver that has a certificate for a name, after one that does not accept connections and one
// whose protocol is not supported.
func TestResolversAreAskedByTLS(t *testing.T) {
	ca := lab.NewCA(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", file)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ca.Certificate(t, "dns.example.com")}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lab.Report(t, closed.Close())
	lab.RunDNS(t, &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		rr, _ := dns.NewRR(q.Question[0].Name + " 60 IN A 198.51.100.7") // the record is valid
		reply.Answer = []dns.RR{rr}
		_ = w.WriteMsg(reply) // the client checks the answer
	})})
	address := func(l net.Listener) netip.AddrPort { return netip.MustParseAddrPort(l.Addr().String()) }
	for name, want := range map[string]int{"dns.example.com": dns.RcodeSuccess, "other.example.com": dns.RcodeServerFailure, "": dns.RcodeServerFailure} {
		policy := &model.Egress{Allow: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, Resolvers: []model.Resolver{
			{Address: address(l), Protocol: "https"}, {Address: address(closed), Protocol: "tls", ServerName: name},
			{Address: address(l), Protocol: "tls", ServerName: name},
		}}
		r := NewResolver(func() *model.Egress { return policy }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		reply := r.resolve(new(dns.Msg).SetQuestion("registry.example.com.", dns.TypeA))
		if reply.Rcode != want || (len(reply.Answer) == 1) != (want == dns.RcodeSuccess) {
			t.Errorf("server name %q: %s with %d records, want %s", name, dns.RcodeToString[reply.Rcode], len(reply.Answer), dns.RcodeToString[want])
		}
	}
}

func TestLocalNames(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	for text, want := range map[string][]string{
		"": nil,
		"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n10.128.0.7\tdemo-proxy-0.demo-proxy.clusters.svc.cluster.local\tdemo-proxy-0\n" +
			"192.0.2.9 Mirror.example.com b.example.com # of hostAliases: c.example.com": {
			"b.example.com", "demo-proxy-0.demo-proxy.clusters.svc.cluster.local", "mirror.example.com",
		},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := LocalNames(file); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	if got, err := LocalNames(file + "-absent"); err != nil || got != nil {
		t.Errorf("without a file: %q, %v", got, err)
	}
}
