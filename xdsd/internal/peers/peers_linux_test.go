package peers

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/test/lab"
)

var network lab.Network

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

const manifests = `
apiVersion: hypershift.openshift.io/v1beta1
kind: HostedCluster
metadata: {name: demo, namespace: clusters}
spec: {dns: {baseDomain: example.com}, release: {image: "registry.example.org/release:1"}}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan100}
  infraComponents:
    dhcp: {serverIP: 192.0.2.2, rangeStart: 192.0.2.100, rangeEnd: 192.0.2.199}
    dns: {serverIP: 192.0.2.3}
    proxy: {serverIP: 192.0.2.4}
`

// TestPeersAreReported breaks hosts on a VLAN, which the test joins with the proxy's address.
func TestPeersAreReported(t *testing.T) {
	network.Need(t)
	hosts := map[string]*lab.Namespace{}
	for i, name := range []string{"gateway", "dhcp", "dns"} {
		hosts[name] = lab.NewNamespace(t)
		if err := lab.Cable(lab.End{Bridge: "vlan"}, lab.End{
			In: hosts[name], Device: "net1", MAC: fmt.Sprintf("02:00:00:00:00:0%d", i+1), Addresses: []string{fmt.Sprintf("192.0.2.%d/24", i+1)},
		}); err != nil {
			t.Fatal(err)
		}
	}
	var own *lab.Namespace
	own.Run(t, "ip", "address", "add", "192.0.2.4/24", "dev", "vlan")
	// As the CNI plugin sbr configures a pod: only packets from the VLAN address reach the VLAN.
	own.Run(t, "ip", "route", "add", "192.0.2.0/24", "dev", "vlan", "src", "192.0.2.4", "table", "100")
	own.Run(t, "ip", "rule", "add", "from", "192.0.2.4", "table", "100")
	own.Run(t, "ip", "route", "delete", "192.0.2.0/24", "dev", "vlan", "table", "main")
	serveDNS(t, hosts["dns"])
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "site.yaml"), []byte(manifests), 0o600); err != nil {
		t.Fatal(err)
	}
	options := model.Options{}
	objects, err := watch.ReadManifests(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := model.Build(objects, options)
	prober := New(nil, slog.New(slog.DiscardHandler))
	for _, tc := range []struct {
		name    string
		host    string
		command string
		want    []string
	}{
		{"all answer", "", "", []string{
			`xdsd_vlan_dns_forward_lost_queries{192.0.2.3} 0`, `xdsd_vlan_dns_forward{192.0.2.3,NXDOMAIN} 1`, `xdsd_vlan_dns_lost_queries{192.0.2.3} 0`,
			`xdsd_vlan_dns{192.0.2.3} 1`,
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:02} 1`, `xdsd_vlan_neighbor{192.0.2.3,02:00:00:00:00:03} 1`,
		}},
		{"DHCP's link is down", "dhcp", "ip link set net1 down", []string{
			`xdsd_vlan_dns_forward_lost_queries{192.0.2.3} 0`, `xdsd_vlan_dns_forward{192.0.2.3,NXDOMAIN} 1`, `xdsd_vlan_dns_lost_queries{192.0.2.3} 0`,
			`xdsd_vlan_dns{192.0.2.3} 1`,
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,} 0`, `xdsd_vlan_neighbor{192.0.2.3,02:00:00:00:00:03} 1`,
		}},
		{"another host has DHCP's address", "gateway", "ip address add 192.0.2.2/24 dev net1", []string{
			`xdsd_vlan_dns_forward_lost_queries{192.0.2.3} 0`, `xdsd_vlan_dns_forward{192.0.2.3,NXDOMAIN} 1`, `xdsd_vlan_dns_lost_queries{192.0.2.3} 0`,
			`xdsd_vlan_dns{192.0.2.3} 1`,
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.3,02:00:00:00:00:03} 1`,
		}},
		// The names of forwarded queries begin with oooi, 21 bytes after the UDP header.
		{"every second forwarded query is lost", "dns", "nft add table inet f; add chain inet f c { type filter hook input priority 0; }; add rule inet f c udp dport 53 @th,168,32 0x6f6f6f69 numgen inc mod 2 == 0 drop", nil},
		{"every second forwarded query is still lost", "", "", []string{
			`xdsd_vlan_dns_forward_lost_queries{192.0.2.3} 1`, `xdsd_vlan_dns_forward{192.0.2.3,NXDOMAIN} 1`, `xdsd_vlan_dns_lost_queries{192.0.2.3} 0`,
			`xdsd_vlan_dns{192.0.2.3} 1`,
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.3,02:00:00:00:00:03} 1`,
		}},
		{"no forwarded query has a reply", "dns", "nft add rule inet f c udp dport 53 @th,168,32 0x6f6f6f69 drop", nil},
		{"no forwarded query has a reply again", "", "", []string{ // an outage
			`xdsd_vlan_dns_forward_lost_queries{192.0.2.3} 0`, `xdsd_vlan_dns_forward{192.0.2.3,} 1`, `xdsd_vlan_dns_lost_queries{192.0.2.3} 0`, `xdsd_vlan_dns{192.0.2.3} 1`,
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.3,02:00:00:00:00:03} 1`,
		}},
		{"queries are forwarded again", "dns", "nft delete table inet f", nil},
		{"half of the packets are lost", "dns", "nft add table inet f; add chain inet f c { type filter hook input priority 0; }; add rule inet f c udp dport 53 numgen random mod 2 == 0 drop", nil},
		{"half of the packets are still lost", "", "", nil},
		{"a filter drops queries", "dns", "nft add rule inet f c udp dport 53 drop", nil}, // a single time may be a restart
		{"a filter still drops queries", "", "", []string{
			`xdsd_vlan_dns_lost_queries{192.0.2.3} 1`, `xdsd_vlan_dns{192.0.2.3} 0`,
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.3,02:00:00:00:00:03} 1`,
		}},
		{"DNS lost its address", "dns", "ip address flush dev net1", []string{
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.3,} 0`,
		}},
		{"the other host lost DHCP's address", "gateway", "ip address delete 192.0.2.2/24 dev net1", []string{
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,} 0`, `xdsd_vlan_neighbor{192.0.2.3,} 0`,
		}},
		{"DHCP answers again", "dhcp", "ip link set net1 up", []string{
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:02} 1`, `xdsd_vlan_neighbor{192.0.2.3,} 0`,
		}},
		{"DHCP does not answer again", "dhcp", "ip link set net1 down", []string{
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,} 0`, `xdsd_vlan_neighbor{192.0.2.3,} 0`,
		}},
		{"the other host answers again", "gateway", "ip address add 192.0.2.2/24 dev net1", []string{
			`xdsd_vlan_neighbor_alternating{192.0.2.2,02:00:00:00:00:01,02:00:00:00:00:02} 1`,
			`xdsd_vlan_neighbor{192.0.2.1,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.2,02:00:00:00:00:01} 1`, `xdsd_vlan_neighbor{192.0.2.3,} 0`,
		}},
	} {
		if tc.host != "" {
			program, arguments, _ := strings.Cut(tc.command, " ")
			line := append([]string{program}, strings.Fields(arguments)...)
			if program == "nft" {
				line = []string{program, arguments}
			}
			hosts[tc.host].Run(t, line...)
		}
		own.Run(t, "ip", "neigh", "flush", "all") // otherwise the kernel keeps its entries for half a minute
		if err := prober.probe(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		if got := series(t, prober); tc.want != nil && !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}

	snapshot.ProxyServers = []*model.ProxyServer{{Upstreams: []*model.Upstream{{FromVLAN: true, Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.9:443"), netip.MustParseAddrPort("203.0.113.9:443")}}}}}
	hosts["gateway"].Run(t, "ip", "address", "add", "192.0.2.9/24", "dev", "net1")
	if err := prober.probe(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if got, want := series(t, prober), `xdsd_vlan_neighbor{192.0.2.9,02:00:00:00:00:01} 1`; !slices.Contains(got, want) {
		t.Errorf("with an apps address: got %q, want %s", got, want)
	}
}

// serveDNS answers queries in a namespace until the end of the test: NXDOMAIN for names in the domain invalid, and an
// empty reply for others.
func serveDNS(t *testing.T, n *lab.Namespace) {
	t.Helper()
	var conn net.PacketConn
	var listener net.Listener
	if err := n.Do(func() (err error) {
		if conn, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "192.0.2.3:53"); err == nil {
			listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp4", "192.0.2.3:53")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		if dns.IsSubDomain("invalid.", q.Question[0].Name) {
			reply.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(reply) // the test fails if the reply is missing
	})
	for _, server := range []*dns.Server{{PacketConn: conn, Handler: handler}, {Listener: listener, Handler: handler}} {
		lab.RunDNS(t, server)
	}
}

// series returns the metrics of a Prober, except times and the number of queries, as "name{label values} value", sorted. The
// number of lost queries is 0 or 1 for more.
func series(t *testing.T, p *Prober) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), "_timestamp_seconds") || f.GetName() == "xdsd_vlan_packet_bytes" || strings.HasSuffix(f.GetName(), "_queries") && !strings.HasSuffix(f.GetName(), "_lost_queries") {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			list = append(list, fmt.Sprintf("%s{%s} %g", f.GetName(), strings.Join(values, ","), min(m.GetGauge().GetValue(), 1)))
		}
	}
	slices.Sort(list)
	return list
}
