package probe_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// network is the network namespace of the tests, with the servers' addresses.
var network = lab.Network{
	Ranges: []string{"192.0.2.0/24"}, Build: []string{"xdsd"}, Sources: []string{"xdsd", "internal"},
}

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

// serveDNS starts a DNS server on one transport. It answers NXDOMAIN for names that begin with "no.", a server's address for
// those that begin with "good.", and two addresses for all others.
func serveDNS(t *testing.T, address, transport string) {
	t.Helper()
	started := make(chan struct{})
	server := &dns.Server{Addr: address, Net: transport, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, r *dns.Msg) {
		answer := new(dns.Msg).SetReply(r)
		if strings.HasPrefix(r.Question[0].Name, "no.") {
			answer.Rcode = dns.RcodeNameError
		} else {
			addresses := []string{"198.51.100.7", "198.51.100.3"}
			if strings.HasPrefix(r.Question[0].Name, "good.") {
				addresses = []string{"192.0.2.85"}
			}
			for _, ip := range addresses {
				answer.Answer = append(answer.Answer, &dns.A{Hdr: dns.RR_Header{Name: r.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}, A: net.ParseIP(ip)})
			}
		}
		_ = w.WriteMsg(answer)
	})}
	go func() { _ = server.ListenAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown() })
	<-started
}

// serveDHCP starts a DHCP server in its own network namespace on the VLAN. n is the last part of its addresses.
func serveDHCP(t *testing.T, n string) {
	t.Helper()
	m := lab.NewMachine(t, "vlan", "02:00:00:00:01:0"+n)
	m.Run(t, "ip", "address", "add", "198.18.9."+n+"/24", "dev", "eth0")
	config := filepath.Join(m.Dir, "udhcpd.conf")
	text := "start 198.18.9.1" + n + "0\nend 198.18.9.1" + n + "9\ninterface eth0\noption subnet 255.255.255.0\noption dns 203.0.113.5" + n + "\noption router 198.18.9.1\nlease_file " + config + ".leases\npidfile " + config + ".pid\n"
	lab.Must(t, errors.Join(os.WriteFile(config+".leases", nil, 0o600), os.WriteFile(config, []byte(text), 0o600)))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := m.Command(ctx, "busybox", "udhcpd", "-f", config)
	lab.Must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // returns an error, because the process was killed
	})
}
