package views

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

// addHostedCluster adds the hosted cluster <name>.example.com with the proxy's Service.
func addHostedCluster(in *model.Objects, name, clusterIP string) {
	in.HostedClusters = append(in.HostedClusters, &objects.HostedCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name},
		Spec:       objects.HostedClusterSpec{DNS: objects.HostedClusterDNS{BaseDomain: "example.com"}},
	})
	addService(in, name+"-proxy", clusterIP)
}

func addService(in *model.Objects, name string, clusterIPs ...string) {
	in.Services = append(in.Services, &objects.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: name},
		Spec:       objects.ServiceSpec{ClusterIPs: clusterIPs},
	})
}

// addInfra adds an Infra of the hosted cluster with the proxy's address on a VLAN.
func addInfra(in *model.Objects, cluster, vlan, proxy string, cidrs ...string) {
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

// answerFor returns the answer that a client gets for a cluster's API: "refused", or its view and "nothing" or the
// addresses.
func answerFor(t *Table, client, cluster string) string {
	address, _ := netip.ParseAddr(client) // "" is a query without a source address
	view := t.ClientView(address)
	if view == nil {
		return "refused"
	}
	node, exact := view.Tree.Lookup("api." + cluster + ".example.com.")
	if !exact {
		return view.Name + " nothing"
	}
	text := view.Name
	for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
		m := new(dns.Msg)
		node.Answer(m, "api."+cluster+".example.com.", qtype)
		for _, rr := range m.Answer {
			text += " " + strings.TrimPrefix(rr.String(), rr.Header().String())
		}
	}
	return text
}

type clientCase struct{ name, client, cluster, want string }

func checkAnswers(t *testing.T, in *model.Objects, properties string, cases []clientCase) {
	t.Helper()
	cfg := config(t, properties)
	table := cfg.newTable(model.Build(in, model.Options{Scope: cfg.Source.Scope}), nil, controlPlane, 1, nil)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			if got := answerFor(table, tc.client, tc.cluster); got != tc.want {
				t.Errorf("%s queries %s: got %q, want %q", tc.client, tc.cluster, got, tc.want)
			}
		})
	}
}

// twoVLANs returns the objects of two hosted clusters, each on a VLAN of its own.
func twoVLANs() *model.Objects {
	in := &model.Objects{}
	addHostedCluster(in, "blue", "10.96.0.10")
	addHostedCluster(in, "green", "10.96.0.20")
	addInfra(in, "blue", "vlan10", "192.0.2.3", "192.0.2.0/24", "2001:db8:10::/64")
	addInfra(in, "green", "vlan20", "198.51.100.3", "198.51.100.0/24")
	addService(in, "lab-proxy", "10.96.0.30", "fd00:96::30")
	return in
}

func TestViewsFromInfras(t *testing.T) {
	checkAnswers(t, twoVLANs(), "", []clientCase{
		{"own cluster", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"own cluster over IPv6", "2001:db8:10::77", "blue", "vlan 192.0.2.3"},
		{"another cluster", "192.0.2.77", "green", "vlan nothing"},
		{"the other VLAN", "198.51.100.77", "green", "vlan 198.51.100.3"},
		{"all others are pods", "10.128.0.1", "blue", "pod 10.96.0.10"},
		{"pods see every cluster", "10.128.0.1", "green", "pod 10.96.0.20"},
		{"pods over IPv6", "fd00::1", "blue", "pod 10.96.0.10"},
		{"a query without a source address", "", "blue", "refused"},
		{"a link-local IPv6 address", "fe80::5054:ff:fe12:3456", "blue", "refused"},
		{"a link-local IPv4 address", "169.254.7.7", "blue", "refused"},
	})
}

func TestPodsByTheirAddress(t *testing.T) {
	checkAnswers(t, twoVLANs(), "view pod 10.128.0.0/14 198.51.100.128/25", []clientCase{
		{"a pod", "10.128.0.1", "green", "pod 10.96.0.20"},
		{"a client on an Infra's VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"which sees its own cluster only", "198.51.100.77", "blue", "vlan nothing"},
		{"the longest prefix wins", "198.51.100.177", "blue", "pod 10.96.0.10"},
		{"another address", "203.0.113.7", "blue", "refused"},
		{"a VM with an address outside of the VLAN's networks", "2001:db8:99::1", "blue", "refused"},
		{"a link-local address", "fe80::1", "blue", "refused"},
		{"a query without a source address", "", "blue", "refused"},
	})
	t.Run("beside another view", func(t *testing.T) {
		checkAnswers(t, twoVLANs(), "hostedcluster clusters/blue\ninfra clusters/blue\nview pod 10.128.0.0/14\nview lab 203.0.113.0/24\nanswer lab 203.0.113.3", []clientCase{
			{"the VLAN of an Infra", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"the other view", "203.0.113.7", "blue", "lab 203.0.113.3"},
		})
	})
}

func TestViewsFromInfrasWithAnAnswerForPods(t *testing.T) {
	checkAnswers(t, twoVLANs(), "answer pod service clusters/lab-proxy", []clientCase{
		{"VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"pod", "10.128.0.1", "blue", "pod 10.96.0.30 fd00:96::30"},
	})
}

func TestViewsWithoutInfras(t *testing.T) {
	in := &model.Objects{}
	addHostedCluster(in, "blue", "10.96.0.10")
	checkAnswers(t, in, "", []clientCase{
		{"the cluster has no proxy", "192.0.2.77", "blue", "pod nothing"},
		{"a query without a source address", "", "blue", "pod nothing"},
	})
	checkAnswers(t, in, "view vlan", []clientCase{{"no VLAN exists", "192.0.2.77", "blue", "refused"}})
}

func TestVLANsThatShareACIDRAreRefused(t *testing.T) {
	in := &model.Objects{}
	for n, name := range []string{"blue", "green", "red"} { // three: the third must not get the CIDR after the first two conflict
		addHostedCluster(in, name, fmt.Sprintf("10.96.0.%d", n+1))
		addInfra(in, name, "vlan-"+name, fmt.Sprintf("192.0.2.%d", n+1), "192.0.2.0/24", fmt.Sprintf("10.%d.0.0/16", n))
	}
	for _, properties := range []string{"", "view vlan", "view vlan 192.0.2.0/24 10.0.0.0/8", "view vlan 192.0.2.0/25 10.0.0.0/8\nview pod 172.16.0.0/12"} {
		t.Run(properties, func(t *testing.T) {
			checkAnswers(t, in, properties, []clientCase{
				{"a client of the CIDR", "192.0.2.77", "blue", "refused"},
				{"a client of a CIDR that one VLAN has alone", "10.0.0.77", "blue", "vlan 192.0.2.1"},
				{"a client of another VLAN's own CIDR", "10.1.0.77", "green", "vlan 192.0.2.2"},
				{"which gets its own cluster only", "10.1.0.77", "blue", "vlan nothing"},
			})
		})
	}
	t.Run("with an Infra in scope", func(t *testing.T) {
		checkAnswers(t, in, "infra clusters/green", []clientCase{{"the CIDR is unambiguous", "192.0.2.77", "green", "vlan 192.0.2.2"}})
	})
}

func TestInfrasOnOneVLANShareItsView(t *testing.T) {
	in := &model.Objects{}
	addHostedCluster(in, "blue", "10.96.0.10")
	addHostedCluster(in, "green", "10.96.0.20")
	addInfra(in, "blue", "vlan10", "192.0.2.3", "192.0.2.0/24")
	addInfra(in, "green", "vlan10", "192.0.2.4", "192.0.2.0/24", "198.51.100.0/24")
	cases := []clientCase{
		{"one cluster", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"the other", "192.0.2.77", "green", "vlan 192.0.2.4"},
		{"from the second CIDR", "198.51.100.77", "blue", "vlan 192.0.2.3"},
	}
	checkAnswers(t, in, "", cases)
	checkAnswers(t, in, "view vlan", cases)
	t.Run("narrowed to one Infra", func(t *testing.T) {
		checkAnswers(t, in, "infra clusters/blue", []clientCase{
			{"its cluster", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"the other cluster", "192.0.2.77", "green", "vlan nothing"},
			{"the other Infra's CIDR", "198.51.100.77", "blue", "pod 10.96.0.10"},
		})
	})
}

func TestBlockIsOneView(t *testing.T) {
	checkAnswers(t, twoVLANs(), "view vlan", []clientCase{
		{"VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
		{"the other VLAN", "198.51.100.77", "green", "vlan 198.51.100.3"},
		{"other clients are refused, not treated as pods", "10.128.0.1", "blue", "refused"},
		{"an IPv6 client is refused if the VLAN has no IPv6", "2001:db8:20::1", "green", "refused"},
	})
	checkAnswers(t, twoVLANs(), "view pod", []clientCase{
		{"pod", "10.128.0.1", "blue", "pod 10.96.0.10"},
		{"an address on the VLAN makes no difference", "192.0.2.77", "blue", "pod 10.96.0.10"},
		{"a query without an address", "", "blue", "pod 10.96.0.10"},
	})
	checkAnswers(t, twoVLANs(), "hostedcluster clusters/green\nview lab\nanswer lab 203.0.113.9 2001:db8::9", []clientCase{
		{"answer by address", "10.128.0.1", "green", "lab 203.0.113.9 2001:db8::9"},
		{"a cluster out of scope", "10.128.0.1", "blue", "lab nothing"},
	})
	checkAnswers(t, twoVLANs(), "infra clusters/blue\nview vlan\nanswer vlan 203.0.113.9", []clientCase{
		{"a configured answer for the VLAN", "10.128.0.1", "blue", "vlan 203.0.113.9"},
		{"a cluster that no Infra in scope serves", "10.128.0.1", "green", "vlan nothing"},
	})
}

func TestAnswerByService(t *testing.T) {
	checkAnswers(t, twoVLANs(), "view pod\nanswer pod service clusters/lab-proxy", []clientCase{
		{"both families", "10.128.0.1", "blue", "pod 10.96.0.30 fd00:96::30"},
		{"another cluster", "10.128.0.1", "green", "pod 10.96.0.30 fd00:96::30"},
	})
	checkAnswers(t, twoVLANs(), "view pod\nanswer pod service clusters/missing", []clientCase{
		{"the name exists without an address if the Service does not exist", "10.128.0.1", "blue", "pod"},
	})
}

func TestViewsByAddress(t *testing.T) {
	t.Run("the only VLAN", func(t *testing.T) {
		in := &model.Objects{}
		addHostedCluster(in, "blue", "10.96.0.10")
		addInfra(in, "blue", "vlan10", "192.0.2.3", "192.0.2.0/25")
		checkAnswers(t, in, "view vlan 192.0.2.0/24 172.16.0.0/12\nview pod 10.0.0.0/8", []clientCase{
			{"a client in its CIDR", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"a routed client", "192.0.2.200", "blue", "vlan 192.0.2.3"},
			{"a routed client from a network of its own", "172.16.0.1", "blue", "vlan 192.0.2.3"},
			{"a pod", "10.1.2.3", "blue", "pod 10.96.0.10"},
			{"another address", "203.0.113.1", "blue", "refused"},
			{"a query without a source address", "", "blue", "refused"},
		})
		checkAnswers(t, in, "view vlan 0.0.0.0/0", []clientCase{
			{"a client in the VLAN's CIDR", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"a prefix of length 0 is not a routed network", "192.0.2.200", "blue", "refused"},
		})
		checkAnswers(t, in, "view vlan 192.0.2.64/26", []clientCase{
			{"in the view's part of the VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"in the other part", "192.0.2.7", "blue", "refused"},
		})
	})
	t.Run("several VLANs", func(t *testing.T) {
		checkAnswers(t, twoVLANs(), "view vlan 192.0.2.0/23 198.51.100.0/24\nview pod 10.0.0.0/8", []clientCase{
			{"one", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"the other", "198.51.100.77", "green", "vlan 198.51.100.3"},
			{"a network of no VLAN", "192.0.3.77", "blue", "refused"},
			{"a VLAN's network outside of the view", "2001:db8:10::77", "blue", "refused"},
			{"a pod", "10.1.2.3", "blue", "pod 10.96.0.10"},
		})
	})
	t.Run("answers", func(t *testing.T) {
		checkAnswers(t, twoVLANs(), `
			hostedcluster clusters/blue
			infra clusters/blue
			view vlan 192.0.2.0/24
			view lab 192.0.2.128/25 10.9.0.0/16
			answer lab service clusters/lab-proxy
			view pod 10.0.0.0/8`, []clientCase{
			{"VLAN", "192.0.2.77", "blue", "vlan 192.0.2.3"},
			{"a network inside the VLAN", "192.0.2.200", "blue", "lab 10.96.0.30 fd00:96::30"},
			{"a network inside that of the pods", "10.9.0.1", "blue", "lab 10.96.0.30 fd00:96::30"},
			{"pod", "10.8.0.1", "blue", "pod 10.96.0.10"},
			{"a cluster out of scope", "10.9.0.1", "green", "lab nothing"},
		})
	})
}

func TestTableCarriesTTLAndSerial(t *testing.T) {
	cfg := config(t, "view pod")
	table := cfg.newTable(model.Build(twoVLANs(), model.Options{Scope: cfg.Source.Scope}), nil, nametree.TTLs{nametree.ControlPlane: 7}, 42, nil)
	node, _ := table.ClientView(netip.Addr{}).Tree.Lookup("blue.example.com.")
	m := new(dns.Msg)
	node.Answer(m, "blue.example.com.", dns.TypeSOA)
	soa, ok := m.Answer[0].(*dns.SOA)
	if !ok || soa.Hdr.Ttl != 7 || soa.Serial != 42 {
		t.Errorf("SOA is %s", m.Answer[0])
	}
}

// TestTablesReuseUnchangedViews changes one of two VLANs: the views of the other VLAN and of pods are reused, with
// their counters.
func TestTablesReuseUnchangedViews(t *testing.T) {
	in := twoVLANs()
	cfg := config(t, "")
	builder := model.NewBuilder(model.Options{}, nil)
	before := cfg.newTable(builder.Update(in.Additions()), nil, controlPlane, 1, nil)

	moved := *in.Infras[0]
	moved.Spec.InfraComponents.Proxy = &v1alpha1.InfraProxy{ServerIP: "192.0.2.99"}
	change := model.Change{Kind: "Infra", Namespace: moved.Namespace, Name: moved.Name, Now: &moved}
	after := cfg.newTable(builder.Update([]model.Change{change}), nil, controlPlane, 2, before)

	for client, same := range map[string]bool{"192.0.2.7": false, "198.51.100.7": true, "10.0.0.1": true} {
		address := netip.MustParseAddr(client)
		if got := before.ClientView(address) == after.ClientView(address); got != same {
			t.Errorf("the view of %s is reused: %t, want %t", client, got, same)
		}
	}
	if got, want := answerFor(after, "192.0.2.7", "blue"), "vlan 192.0.2.99"; got != want {
		t.Errorf("on the changed VLAN: got %q, want %q", got, want)
	}
}

// fleet returns n hosted clusters, each with an Infra and a Service.
func fleet(n int) *model.Objects {
	in := &model.Objects{}
	for i := range n {
		name, network := fmt.Sprintf("c%05d", i), fmt.Sprintf("10.%d.%d.", i/250, i%250)
		addHostedCluster(in, name, fmt.Sprintf("172.30.%d.%d", i/250, i%250))
		addInfra(in, name, "vlan-"+name, network+"3", network+"0/24")
	}
	return in
}

// BenchmarkChange measures the time from a change of one of many hosted clusters to the new table. "Full" builds
// everything.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		in := fleet(n)
		addresses := func(round int) (proxy, clusterIP string) {
			i := round % n
			return fmt.Sprintf("10.%d.%d.%d", i/250, i%250, 3+round/n%2), fmt.Sprintf("172.%d.%d.%d", 30+round/n%2, i/250, i%250)
		}
		infra := func(round int) model.Change {
			now := *in.Infras[round%n]
			proxy, _ := addresses(round)
			now.Spec.InfraComponents.Proxy = &v1alpha1.InfraProxy{ServerIP: proxy}
			return model.Change{Kind: "Infra", Namespace: now.Namespace, Name: now.Name, Now: &now}
		}
		service := func(round int) model.Change {
			now := *in.Services[round%n]
			_, clusterIP := addresses(round)
			now.Spec.ClusterIPs = []string{clusterIP}
			return model.Change{Kind: "Service", Namespace: now.Namespace, Name: now.Name, Now: &now}
		}
		deleted := func(round int) model.Change {
			now := *in.HostedClusters[round/2%n]
			c := model.Change{Kind: "HostedCluster", Namespace: now.Namespace, Name: now.Name}
			if round%2 == 1 {
				c.Now = &now
			}
			return c
		}
		for name, change := range map[string]func(round int) model.Change{"Infra": infra, "Service": service, "HostedCluster": deleted} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				builder, cfg := model.NewBuilder(model.Options{Apps: &model.AppsOptions{}}, nil), &Config{}
				table := cfg.newTable(builder.Update(in.Additions()), nil, controlPlane, 0, nil)
				round, times := 0, []float64{}
				b.ReportAllocs()
				for b.Loop() {
					round++
					c, started := change(round+n), time.Now()
					table = cfg.newTable(builder.Update([]model.Change{c}), nil, controlPlane, uint32(round), table)
					times = append(times, float64(time.Since(started).Nanoseconds()))
				}
				slices.Sort(times)
				b.ReportMetric(times[len(times)/2], "p50-ns")
				b.ReportMetric(times[len(times)*99/100], "p99-ns")
			})
		}
		b.Run(fmt.Sprintf("Full/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				(&Config{}).newTable(model.Build(in, model.Options{Apps: &model.AppsOptions{}}), nil, controlPlane, 1, nil)
			}
		})
	}
}
