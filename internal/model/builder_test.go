package model

import (
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// TestRecreatedClusterInheritsNoAppsAddress recreates a hosted cluster, whose apps had an address, under the
// same name. The new cluster must not get that address, which another host may have now.
func TestRecreatedClusterInheritsNoAppsAddress(t *testing.T) {
	infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}}
	infra.Spec.HostedClusterRef = &v1alpha1.HostedClusterReference{Namespace: "clusters", Name: "demo"}
	infra.Spec.NetworkConfig.CIDR = "192.0.2.0/24"
	infra.Spec.AppsIngress = &v1alpha1.AppsIngress{Enabled: true}
	infra.Status.AppsIngress = &v1alpha1.AppsIngressStatus{ExternalIP: "192.0.2.9"}
	withoutStatus := *infra
	withoutStatus.Status.AppsIngress = nil
	countAddresses := func(uid types.UID, infra *v1alpha1.Infra, last map[string][]netip.Addr) (*Snapshot, int) {
		hc := &objects.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo", UID: uid}}
		hc.Spec.DNS.BaseDomain = "example.com"
		in := &Objects{HostedClusters: []*objects.HostedCluster{hc}, Infras: []*v1alpha1.Infra{infra}, LastGood: last}
		s := Build(in, Options{Apps: &AppsOptions{}})
		return s, len(s.Clusters[0].Apps.Addresses)
	}
	first, n := countAddresses("one", infra, nil)
	if n != 1 {
		t.Fatalf("%d addresses: %v", n, first.Problems)
	}
	if _, n := countAddresses("one", &withoutStatus, first.LastGood()); n != 1 {
		t.Errorf("the same cluster keeps %d addresses, want 1", n)
	}
	if _, n := countAddresses("two", &withoutStatus, first.LastGood()); n != 0 {
		t.Errorf("the recreated cluster inherits %d addresses, want 0", n)
	}
}

// TestNodePortThatIsAllocatedLater allocates the node port of a Service after the HostedCluster was parsed.
// The HostedCluster does not change then.
func TestNodePortThatIsAllocatedLater(t *testing.T) {
	hc := &objects.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}}
	hc.Spec.DNS.BaseDomain = "example.com"
	hc.Spec.Services = []objects.ServicePublishing{{
		Service: "Konnectivity", Strategy: objects.PublishingStrategy{Type: "NodePort", NodePort: &objects.NodePort{Address: "node.example.com"}},
	}}
	service := func(nodePort int32) *objects.Service {
		s := &objects.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters-demo", Name: "konnectivity-server"}}
		s.Spec.Ports = []objects.ServicePort{{Port: 8091, NodePort: nodePort}}
		return s
	}
	b := NewBuilder(Options{}, nil)
	b.Update((&Objects{HostedClusters: []*objects.HostedCluster{hc}}).Additions())
	for _, want := range []int32{0, 32691, 0, 30091} {
		s := b.Update((&Objects{Services: []*objects.Service{service(want)}}).Additions())
		i := slices.IndexFunc(s.Clusters[0].Hostnames, func(h Hostname) bool { return h.Name == "node.example.com" })
		if got := s.Clusters[0].Hostnames[i].Endpoints[0].Port; got != want {
			t.Errorf("konnectivity is on port %d, want %d", got, want)
		}
	}
}

// TestUnchangedUpstreamsAreShared adds a backend to a ProxyServer. The upstreams of the others must be the same ones.
func TestUnchangedUpstreamsAreShared(t *testing.T) {
	server := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"}}
	server.Spec.NetworkConfig.ServerIP = "192.0.2.3"
	add := func(name string) {
		server = server.DeepCopy()
		server.Spec.Backends = append(server.Spec.Backends, v1alpha1.ProxyBackend{
			Name: name, Hostname: name + ".example.com", Port: 443, TargetService: name, TargetPort: intstr.FromInt32(443), TargetNamespace: "n",
		})
	}
	add("b")
	add("d")
	b := NewBuilder(Options{Proxies: true}, nil)
	build := func() []*Upstream {
		return b.Update((&Objects{ProxyServers: []*v1alpha1.ProxyServer{server}}).Additions()).ProxyServers[0].Upstreams
	}
	before := build()
	add("a")
	add("c")
	after := build()
	if len(before) != 2 || len(after) != 4 || after[1] != before[0] || after[3] != before[1] {
		t.Errorf("upstreams %v and then %v", before, after)
	}
	server = server.DeepCopy()
	server.Spec.Backends[0].MaxConnections = new(int32(7))
	if again := build(); again[1] == after[1] || again[3] != after[3] {
		t.Errorf("upstreams %v after the change of one, before %v", again, after)
	}
}
