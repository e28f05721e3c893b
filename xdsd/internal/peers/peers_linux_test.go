package peers

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
		{"all answer", "", "", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:02", "192.0.2.3 02:00:00:00:00:03"}},
		{"DHCP's link is down", "dhcp", "ip link set net1 down", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 ", "192.0.2.3 02:00:00:00:00:03"}},
		{"another host has DHCP's address", "gateway", "ip address add 192.0.2.2/24 dev net1", []string{
			"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:01", "192.0.2.3 02:00:00:00:00:03",
		}},
		{"DNS lost its address", "dns", "ip address flush dev net1", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:01", "192.0.2.3 "}},
		{"the other host lost DHCP's address", "gateway", "ip address delete 192.0.2.2/24 dev net1", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 ", "192.0.2.3 "}},
		{"DHCP answers again", "dhcp", "ip link set net1 up", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:02", "192.0.2.3 "}},
		{"DHCP does not answer again", "dhcp", "ip link set net1 down", []string{"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 ", "192.0.2.3 "}},
		{"the other host answers again", "gateway", "ip address add 192.0.2.2/24 dev net1", []string{
			"192.0.2.1 02:00:00:00:00:01", "192.0.2.2 02:00:00:00:00:01 in turn with 02:00:00:00:00:02", "192.0.2.3 ",
		}},
	} {
		if tc.host != "" {
			program, arguments, _ := strings.Cut(tc.command, " ")
			hosts[tc.host].Run(t, append([]string{program}, strings.Fields(arguments)...)...)
		}
		own.Run(t, "ip", "neigh", "flush", "all") // otherwise the kernel keeps its entries for half a minute
		if err := prober.probe(t.Context(), snapshot); err != nil {
			t.Fatal(err)
		}
		if got := hostsOf(prober); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}

	snapshot.ProxyServers = []*model.ProxyServer{{Upstreams: []*model.Upstream{{FromVLAN: true, Addresses: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.9:443"), netip.MustParseAddrPort("203.0.113.9:443")}}}}}
	hosts["gateway"].Run(t, "ip", "address", "add", "192.0.2.9/24", "dev", "net1")
	if err := prober.probe(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	if got, want := hostsOf(prober), "192.0.2.9 02:00:00:00:00:01"; !slices.Contains(got, want) {
		t.Errorf("with an apps address: got %q, want %s", got, want)
	}
}

// hostsOf returns the hosts that a Prober sees, as "address MAC", or "address " for one that does not answer.
func hostsOf(p *Prober) []string {
	var list []string
	for _, h := range p.View().Hosts {
		text := h.Address.String() + " " + h.MAC
		if h.Other != "" {
			text += " in turn with " + h.Other
		}
		list = append(list, text)
	}
	return list
}
