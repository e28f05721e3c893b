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
	"github.com/densityops/oooi/test/golden"
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

// twoVLANs returns the objects of two hosted clusters, each on a separate VLAN.
func twoVLANs() *model.Objects {
	in := &model.Objects{}
	addHostedCluster(in, "blue", "10.96.0.10")
	addHostedCluster(in, "green", "10.96.0.20")
	addInfra(in, "blue", "vlan10", "192.0.2.3", "192.0.2.0/24", "2001:db8:10::/64")
	addInfra(in, "green", "vlan20", "198.51.100.3", "198.51.100.0/24")
	addService(in, "lab-proxy", "10.96.0.30", "fd00:96::30")
	return in
}

// TestAnswers runs the transcript testdata/answers.txt. "cluster", "infra" and "service" with the arguments of addHostedCluster, addInfra and
// addService add an object, and "clear" removes all. "block" has the properties of a Corefile block, to which the queries after it go:
// CLIENT CLUSTER, with "-" for a query without a source address.
func TestAnswers(t *testing.T) {
	in := &model.Objects{}
	var table *Table
	golden.Transcript(t, "testdata/answers.txt", func(line string) []string {
		words := strings.Fields(line)
		switch words[0] {
		case "clear":
			*in = model.Objects{}
		case "cluster":
			addHostedCluster(in, words[1], words[2])
		case "infra":
			addInfra(in, words[1], words[2], words[3], words[4:]...)
		case "service":
			addService(in, words[1], words[2:]...)
		case "block":
			cfg := config(t, strings.ReplaceAll(strings.TrimPrefix(line, "block"), ";", "\n"))
			table = cfg.newTable(model.Build(in, model.Options{Scope: cfg.Source.Scope}), nil, controlPlane, 1, nil)
		default:
			return []string{answerFor(table, words[0], words[1])}
		}
		return nil
	})
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

// BenchmarkChange measures the time from a change to one of many hosted clusters to the new table. "Full" builds
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
