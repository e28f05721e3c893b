package views

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

// hosted is a hosted cluster <name>.example.com with the proxy's Service for pods.
func hosted(in *model.Objects, name, clusterIP string) {
	in.HostedClusters = append(in.HostedClusters, &objects.HostedCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name},
		Spec:       objects.HostedClusterSpec{DNS: objects.HostedClusterDNS{BaseDomain: "example.com"}},
	})
	service(in, name+"-proxy", clusterIP)
}

func service(in *model.Objects, name string, clusterIPs ...string) {
	in.Services = append(in.Services, &objects.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name},
		Spec:       objects.ServiceSpec{ClusterIPs: clusterIPs},
	})
}

// infra puts a hosted cluster on a VLAN, with its proxy at an address there.
func infra(in *model.Objects, cluster, vlan, proxy string, cidrs ...string) {
	i := &v1alpha1.Infra{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: cluster},
		Spec: v1alpha1.InfraSpec{
			HostedClusterRef: &v1alpha1.HostedClusterReference{Name: cluster},
			NetworkConfig:    v1alpha1.NetworkConfig{CIDR: cidrs[0], NetworkAttachmentDefinition: vlan},
			InfraComponents:  v1alpha1.InfraComponents{Proxy: &v1alpha1.InfraProxy{ServerIP: proxy}},
		},
	}
	for _, cidr := range cidrs[1:] {
		i.Spec.NetworkConfig.AdditionalCIDRs = append(i.Spec.NetworkConfig.AdditionalCIDRs, v1alpha1.CIDR(cidr))
	}
	in.Infras = append(in.Infras, i)
}

// sees says what a client is told of a cluster's API: "refused", or its view and
// in it "nothing" or the addresses.
func sees(t *Table, client, cluster string) string {
	address, _ := netip.ParseAddr(client) // "" is a query without a sender
	sight := t.Sight(address)
	if sight == nil {
		return "refused"
	}
	node, exact := sight.Tree.Lookup("api." + cluster + ".example.com.")
	if !exact {
		return sight.View + " nothing"
	}
	text := sight.View
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m := new(dns.Msg)
		node.Answer(m, "api."+cluster+".example.com.", qtype)
		for _, rr := range m.Answer {
			text += " " + strings.TrimPrefix(rr.String(), rr.Header().String())
		}
	}
	return text
}

type sightCase struct{ name, client, cluster, want string }

func checkSights(t *testing.T, in *model.Objects, properties string, cases []sightCase) {
	t.Helper()
	cfg := config(t, properties)
	table := cfg.newTable(model.Build(in, model.Options{Scope: cfg.Source.Scope}), controlPlane, 1, nil)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := sees(table, tc.client, tc.cluster); got != tc.want {
				t.Errorf("%s asks for %s: got %q, want %q", tc.client, tc.cluster, got, tc.want)
			}
		})
	}
}

// twoVLANs are blue on one VLAN and green on another.
func twoVLANs() *model.Objects {
	in := &model.Objects{}
	hosted(in, "blue", "10.96.0.10")
	hosted(in, "green", "10.96.0.20")
	infra(in, "blue", "vlan10", "192.0.2.3", "192.0.2.0/24", "2001:db8:10::/64")
	infra(in, "green", "vlan20", "198.51.100.3", "198.51.100.0/24")
	service(in, "lab-proxy", "10.96.0.30", "fd00:96::30")
	return in
}

func TestViewsAsTheInfrasSay(t *testing.T) {
	checkSights(t, twoVLANs(), "", []sightCase{
		{"own cluster", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"own cluster over IPv6", "2001:db8:10::77", "blue", "vlan 192.0.2.3"},
		{"another's cluster", "192.0.2.77", "green", "vlan nothing"},
		{"the other VLAN", "198.51.100.77", "green", "vlan 198.51.100.3"},
		{"everybody else is a pod", "10.128.0.1", "blue", "pod 10.96.0.10"},
		{"pods see every cluster", "10.128.0.1", "green", "pod 10.96.0.20"},
		{"pods over IPv6", "fd00::1", "blue", "pod 10.96.0.10"},
		{"a query without a sender", "", "blue", "refused"},
		{"a virtual machine with an IPv6 address of its own alone", "fe80::5054:ff:fe12:3456", "blue", "refused"},
		{"and one of IPv4", "169.254.7.7", "blue", "refused"},
	})
}

func TestPodsByTheirAddress(t *testing.T) {
	checkSights(t, twoVLANs(), "view pod 10.128.0.0/14 198.51.100.128/25", []sightCase{
		{"a pod", "10.128.0.1", "green", "pod 10.96.0.20"},
		{"the VLANs of Infras stay", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"each with its own cluster", "198.51.100.77", "blue", "vlan nothing"},
		{"the longer network wins", "198.51.100.177", "blue", "pod 10.96.0.10"},
		{"anybody else", "203.0.113.7", "blue", "refused"},
		{"another address of a virtual machine", "2001:db8:99::1", "blue", "refused"},
		{"a link-local address", "fe80::1", "blue", "refused"},
		{"a query without a sender", "", "blue", "refused"},
	})
	t.Run("beside another view", func(t *testing.T) {
		checkSights(t, twoVLANs(), "hostedcluster clusters/blue\ninfra clusters/blue\nview pod 10.128.0.0/14\nview lab 203.0.113.0/24\nanswer lab 203.0.113.3", []sightCase{
			{"the VLAN of an Infra", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"the other view", "203.0.113.7", "blue", "lab 203.0.113.3"},
		})
	})
}

func TestViewsAsTheInfrasSayWithAnAnswerForPods(t *testing.T) {
	checkSights(t, twoVLANs(), "answer pod service clusters/lab-proxy", []sightCase{
		{"VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"pod", "10.128.0.1", "blue", "pod 10.96.0.30 fd00:96::30"},
	})
}

func TestViewsWithoutInfras(t *testing.T) {
	in := &model.Objects{}
	hosted(in, "blue", "10.96.0.10")
	checkSights(t, in, "", []sightCase{
		{"no proxy carries the cluster", "192.0.2.77", "blue", "pod nothing"},
		{"a query without a sender", "", "blue", "pod nothing"},
	})
	checkSights(t, in, "view vlan", []sightCase{{"there is no VLAN", "192.0.2.77", "blue", "refused"}})
}

func TestVLANsThatShareACIDRAreRefused(t *testing.T) {
	in := &model.Objects{}
	for n, name := range []string{"blue", "green", "red"} { // three, so that no majority wins
		hosted(in, name, fmt.Sprintf("10.96.0.%d", n+1))
		infra(in, name, "vlan-"+name, fmt.Sprintf("192.0.2.%d", n+1), "192.0.2.0/24", fmt.Sprintf("10.%d.0.0/16", n))
	}
	for _, properties := range []string{"", "view vlan", "view vlan 192.0.2.0/24 10.0.0.0/8", "view vlan 192.0.2.0/25 10.0.0.0/8\nview pod 172.16.0.0/12"} {
		t.Run(properties, func(t *testing.T) {
			checkSights(t, in, properties, []sightCase{
				{"a client of the CIDR", "192.0.2.77", "blue", "refused"},
				{"and of a CIDR that one has alone", "10.0.0.77", "blue", "vlan 192.0.2.1"},
				{"or another", "10.1.0.77", "green", "vlan 192.0.2.2"},
				{"which sees its own only", "10.1.0.77", "blue", "vlan nothing"},
			})
		})
	}
	t.Run("with an Infra in scope", func(t *testing.T) {
		checkSights(t, in, "infra clusters/green", []sightCase{{"the CIDR is its own", "192.0.2.77", "green", "vlan 192.0.2.2"}})
	})
}

func TestInfrasOnOneVLANShareItsView(t *testing.T) {
	in := &model.Objects{}
	hosted(in, "blue", "10.96.0.10")
	hosted(in, "green", "10.96.0.20")
	infra(in, "blue", "vlan10", "192.0.2.3", "192.0.2.0/24")
	infra(in, "green", "vlan10", "192.0.2.4", "192.0.2.0/24", "198.51.100.0/24")
	cases := []sightCase{
		{"one cluster", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"the other", "192.0.2.77", "green", "vlan 192.0.2.4"},
		{"from the second CIDR", "198.51.100.77", "blue", "vlan 192.0.2.3"},
	}
	checkSights(t, in, "", cases)
	checkSights(t, in, "view vlan", cases)
	t.Run("narrowed to one Infra", func(t *testing.T) {
		checkSights(t, in, "infra clusters/blue", []sightCase{
			{"its cluster", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"the other cluster", "192.0.2.77", "green", "vlan nothing"},
			{"the other Infra's CIDR", "198.51.100.77", "blue", "pod 10.96.0.10"},
		})
	})
}

func TestBlockIsOneView(t *testing.T) {
	checkSights(t, twoVLANs(), "view vlan", []sightCase{
		{"VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"the other VLAN", "198.51.100.77", "green", "vlan 198.51.100.3"},
		{"anybody else is refused, never a pod", "10.128.0.1", "blue", "refused"},
		{"and so is IPv6 where the VLAN has none", "2001:db8:20::1", "green", "refused"},
	})
	checkSights(t, twoVLANs(), "view pod", []sightCase{
		{"pod", "10.128.0.1", "blue", "pod 10.96.0.10"},
		{"an address on the VLAN makes no difference", "192.0.2.77", "blue", "pod 10.96.0.10"},
		{"nor does having no address", "", "blue", "pod 10.96.0.10"},
	})
	checkSights(t, twoVLANs(), "hostedcluster clusters/green\nview lab\nanswer lab 203.0.113.9 2001:db8::9", []sightCase{
		{"answer by address", "10.128.0.1", "green", "lab 203.0.113.9 2001:db8::9"},
		{"a cluster out of scope", "10.128.0.1", "blue", "lab nothing"},
	})
	checkSights(t, twoVLANs(), "infra clusters/blue\nview vlan\nanswer vlan 203.0.113.9", []sightCase{
		{"an answer of one's own for the VLAN", "10.128.0.1", "blue", "vlan 203.0.113.9"},
		{"a cluster that no Infra in scope serves", "10.128.0.1", "green", "vlan nothing"},
	})
}

func TestAnswerByService(t *testing.T) {
	checkSights(t, twoVLANs(), "view pod\nanswer pod service clusters/lab-proxy", []sightCase{
		{"both families", "10.128.0.1", "blue", "pod 10.96.0.30 fd00:96::30"},
		{"for every cluster", "10.128.0.1", "green", "pod 10.96.0.30 fd00:96::30"},
	})
	checkSights(t, twoVLANs(), "view pod\nanswer pod service clusters/missing", []sightCase{
		{"of a Service that does not exist yet, the name exists without an address", "10.128.0.1", "blue", "pod"},
	})
}

func TestViewsByAddress(t *testing.T) {
	t.Run("the only VLAN", func(t *testing.T) {
		in := &model.Objects{}
		hosted(in, "blue", "10.96.0.10")
		infra(in, "blue", "vlan10", "192.0.2.3", "192.0.2.0/25")
		checkSights(t, in, "view vlan 192.0.2.0/24 172.16.0.0/12\nview pod 10.0.0.0/8", []sightCase{
			{"a client in its CIDR", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"a routed client", "192.0.2.200", "blue", "vlan 192.0.2.3"},
			{"a routed client from a network of its own", "172.16.0.1", "blue", "vlan 192.0.2.3"},
			{"a pod", "10.1.2.3", "blue", "pod 10.96.0.10"},
			{"anybody else", "203.0.113.1", "blue", "refused"},
			{"a query without a sender", "", "blue", "refused"},
		})
		checkSights(t, in, "view vlan 0.0.0.0/0", []sightCase{
			{"in its CIDR, of all addresses", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"all addresses are no network that is routed to it", "192.0.2.200", "blue", "refused"},
		})
		checkSights(t, in, "view vlan 192.0.2.64/26", []sightCase{
			{"in the part that is the view's", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"in the part that is not", "192.0.2.7", "blue", "refused"},
		})
	})
	t.Run("several VLANs", func(t *testing.T) {
		checkSights(t, twoVLANs(), "view vlan 192.0.2.0/23 198.51.100.0/24\nview pod 10.0.0.0/8", []sightCase{
			{"one", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"the other", "198.51.100.77", "green", "vlan 198.51.100.3"},
			{"a network that no VLAN claims is nobody's", "192.0.3.77", "blue", "refused"},
			{"an address of a VLAN that is in no view", "2001:db8:10::77", "blue", "refused"},
			{"a pod", "10.1.2.3", "blue", "pod 10.96.0.10"},
		})
	})
	t.Run("answers", func(t *testing.T) {
		checkSights(t, twoVLANs(), `
			hostedcluster clusters/blue
			infra clusters/blue
			view vlan 192.0.2.0/24
			view lab 192.0.2.128/25 10.9.0.0/16
			answer lab service clusters/lab-proxy
			view pod 10.0.0.0/8`, []sightCase{
			{"VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"a network inside the VLAN", "192.0.2.200", "blue", "lab 10.96.0.30 fd00:96::30"},
			{"a network inside the pods'", "10.9.0.1", "blue", "lab 10.96.0.30 fd00:96::30"},
			{"pod", "10.8.0.1", "blue", "pod 10.96.0.10"},
			{"a cluster out of scope", "10.9.0.1", "green", "lab nothing"},
		})
	})
}

func TestTableCarriesTTLAndSerial(t *testing.T) {
	cfg := config(t, "view pod")
	table := cfg.newTable(model.Build(twoVLANs(), model.Options{Scope: cfg.Source.Scope}), nametree.TTLs{nametree.ControlPlane: 7}, 42, nil)
	node, _ := table.Sight(netip.Addr{}).Tree.Lookup("blue.example.com.")
	m := new(dns.Msg)
	node.Answer(m, "blue.example.com.", dns.TypeSOA)
	soa, ok := m.Answer[0].(*dns.SOA)
	if !ok || soa.Hdr.Ttl != 7 || soa.Serial != 42 {
		t.Errorf("SOA is %s", m.Answer[0])
	}
}

// TestTablesShareWhatDidNotChange changes one of two VLANs: the other's names, and
// those of the pods, are neither made again nor counted from nothing.
func TestTablesShareWhatDidNotChange(t *testing.T) {
	in := twoVLANs()
	cfg := config(t, "")
	builder := model.NewBuilder(model.Options{})
	before := cfg.newTable(builder.Build(in), controlPlane, 1, nil)

	moved := *in.Infras[0]
	moved.Spec.InfraComponents.Proxy = &v1alpha1.InfraProxy{ServerIP: "192.0.2.99"}
	in.Infras = append([]*v1alpha1.Infra{&moved}, in.Infras[1:]...)
	after := cfg.newTable(builder.Build(in), controlPlane, 2, before)

	for client, same := range map[string]bool{"192.0.2.7": false, "198.51.100.7": true, "10.0.0.1": true} {
		address := netip.MustParseAddr(client)
		if got := before.Sight(address) == after.Sight(address); got != same {
			t.Errorf("%s sees what it saw: %t, want %t", client, got, same)
		}
	}
	if got, want := sees(after, "192.0.2.7", "blue"), "vlan 192.0.2.99"; got != want {
		t.Errorf("on the VLAN that changed: got %q, want %q", got, want)
	}
	if gone := after.gone(before); len(gone) != 0 {
		t.Errorf("zones %v are gone", gone)
	}

	in.HostedClusters, in.Infras = in.HostedClusters[1:], in.Infras[1:]
	last := cfg.newTable(builder.Build(in), controlPlane, 3, after)
	want := map[zoneInView]bool{{VLAN, "blue.example.com."}: true, {Pod, "blue.example.com."}: true}
	if gone := last.gone(after); !maps.Equal(gone, want) {
		t.Errorf("zones %v are gone, want %v", gone, want)
	}
}

// BenchmarkChange measures what a change of one cluster costs from the objects to the
// table, with a thousand of them.
func BenchmarkChange(b *testing.B) {
	in := &model.Objects{}
	const n = 1000
	for i := range n {
		name, network := fmt.Sprintf("c%04d", i), fmt.Sprintf("10.%d.%d.", i/250, i%250)
		hosted(in, name, fmt.Sprintf("172.30.%d.%d", i/250, i%250))
		infra(in, name, "vlan-"+name, network+"3", network+"0/24")
	}
	cfg := &Config{}
	for name, keep := range map[string]bool{"WithWhatWas": true, "AllAnew": false} {
		b.Run(name, func(b *testing.B) {
			builder := model.NewBuilder(model.Options{})
			var table *Table
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				own := *in.Infras[i%n]
				own.Spec.InfraComponents.Proxy = &v1alpha1.InfraProxy{ServerIP: fmt.Sprintf("10.%d.%d.%d", i%n/250, i%n%250, 3+i/n%2)}
				in.Infras[i%n] = &own
				if !keep {
					builder, table = model.NewBuilder(model.Options{}), nil
				}
				table = cfg.newTable(builder.Build(in), controlPlane, uint32(i), table)
			}
		})
	}
}
