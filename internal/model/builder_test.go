package model

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// TestClustersThatDifferAreNotEqual changes every field of a cluster in turn. The new value of a field that
// is not compared would not be used until another field changes.
func TestClustersThatDifferAreNotEqual(t *testing.T) {
	newValue := func() *Cluster {
		return &Cluster{
			Ref: Ref{Kind: "k", Namespace: "n", Name: "a"}, UID: "u", Created: time.Unix(1, 0), ControlPlaneNamespace: "n-a", InfraID: "i",
			Domains: []string{"d"}, AppsDomains: []string{"a"}, AppsNames: []string{"c"},
			Hostnames: []Hostname{{Name: "h", Endpoints: []Endpoint{{Role: RoleAPI, Port: 1, Source: "s"}}}},
			Apps: &Apps{
				Addresses: []netip.Addr{netip.IPv6Unspecified()}, Source: AppsHosted, Infra: &Ref{"k", "n", "i"},
				Hosted: &HostedAccess{Secret: "s", Dial: "d", Service: "s", Selector: map[string]string{"k": "v"}},
			},
		}
	}
	checkEqual(t, newValue, func(a, b *Cluster) bool { return a.equal(b) }, 29)
}

// TestProxiesThatDifferAreNotEqual changes every field of a proxy in turn.
func TestProxiesThatDifferAreNotEqual(t *testing.T) {
	newValue := func() *ProxyServer {
		return &ProxyServer{
			Ref: Ref{"k", "n", "a"}, Infra: &Ref{"k", "n", "i"}, Cluster: &Ref{"k", "n", "c"}, VLAN: []netip.Addr{netip.IPv6Unspecified()},
			AccessLog: true, LogLevel: "info",
			Listeners: []*Listener{{Port: 1, HTTP: true, Default: "d", Backends: true, Routes: []Route{{Host: "h", Upstream: "u", Owner: Ref{"k", "n", "a"}, Source: "s", Rules: []HTTPRule{{
				Headers: []HTTPHeader{{}}, Redirect: &HTTPRedirect{}, Backends: []HTTPBackend{{}}, Retry: &HTTPRetry{Codes: []int32{1}},
			}}}}}},
			Upstreams: []*Upstream{{
				Name: "u", Owner: Ref{"k", "n", "a"}, Backend: "b", Service: "s", Selected: true, PortName: "p", Missing: "m",
				Addresses: []netip.AddrPort{netip.MustParseAddrPort("[::]:1")}, FromVLAN: true, ConnectTimeout: 1, IdleTimeout: 1, MaxConnections: 1,
				MaxPending: 1, Retry: &ConnectRetry{1, 1}, Outlier: &OutlierDetection{1, 1, 1},
				HealthCheck: &HealthCheck{1, 1, 1, 1}, ProxyProtocol: "V1",
			}},
		}
	}
	checkEqual(t, newValue, func(a, b *ProxyServer) bool { return a.equal(b) }, 43)
}

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

// checkEqual changes every part of a value in turn and checks that equal reports a difference. parts is the
// minimal number of parts, so that a walk that misses fields fails.
func checkEqual[T any](t *testing.T, newValue func() *T, equal func(a, b *T) bool, parts int) {
	t.Helper()
	if !equal(newValue(), newValue()) {
		t.Fatal("equal values are not equal")
	}
	changes := 0
	walk(reflect.ValueOf(newValue()), "", func(path string) {
		changes++
		c := newValue()
		n := 0
		walk(reflect.ValueOf(c), "", func(string) { n++ }, func(v reflect.Value) bool { return n == changes && change(v) })
		if equal(c, newValue()) || equal(newValue(), c) {
			t.Errorf("a change of %s is not detected", path)
		}
	}, func(reflect.Value) bool { return false })
	if changes < parts {
		t.Errorf("only %d parts were changed", changes)
	}
}

// walk calls leaf, and then change, for every value in v without parts, until change returns true. It reports
// whether change did.
func walk(v reflect.Value, path string, leaf func(path string), change func(reflect.Value) bool) bool {
	switch {
	case v.Kind() == reflect.Pointer:
		return walk(v.Elem(), path, leaf, change)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			if walk(v.Index(i), path+"[]", leaf, change) {
				return true
			}
		}
		leaf(path + " length")
		return change(v)
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() && v.Type() != reflect.TypeFor[netip.Addr]() && v.Type() != reflect.TypeFor[netip.AddrPort]():
		for i := range v.NumField() {
			if walk(v.Field(i), path+"."+v.Type().Field(i).Name, leaf, change) {
				return true
			}
		}
		return false
	default:
		leaf(path)
		return change(v)
	}
}

// change sets v to another value.
func change(v reflect.Value) bool {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(2, 0)))
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.IPv4Unspecified()))
	case netip.AddrPort:
		v.Set(reflect.ValueOf(netip.MustParseAddrPort("[::]:2")))
	case map[string]string:
		v.Set(reflect.ValueOf(map[string]string{"k": "other"}))
	default:
		switch v.Kind() {
		case reflect.String:
			v.SetString("other")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int32, reflect.Int64:
			v.SetInt(2)
		default: // a slice
			v.Set(reflect.AppendSlice(v, v))
		}
	}
	return true
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
