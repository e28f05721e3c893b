package model

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
)

// TestClustersThatDifferAreNotEqual changes every field of a cluster in turn: one that
// is not compared would keep its old value for as long as nothing else changes.
func TestClustersThatDifferAreNotEqual(t *testing.T) {
	whole := func() *Cluster {
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
	checkEqual(t, whole, func(a, b *Cluster) bool { return a.equal(b) }, 28)
}

// TestProxiesThatDifferAreNotEqual does the same for a proxy.
func TestProxiesThatDifferAreNotEqual(t *testing.T) {
	whole := func() *ProxyServer {
		return &ProxyServer{
			Ref: Ref{"k", "n", "a"}, Infra: &Ref{"k", "n", "i"}, Cluster: &Ref{"k", "n", "c"}, VLAN: []netip.Addr{netip.IPv6Unspecified()},
			AccessLog: true, LogLevel: "info",
			Listeners: []*Listener{{Port: 1, HTTP: true, Default: "d", Plain: "p", Routes: []Route{{Host: "h", Upstream: "u", Owner: Ref{"k", "n", "a"}, Source: "s"}}}},
			Upstreams: []*Upstream{{
				Name: "u", Owner: Ref{"k", "n", "a"}, Backend: "b", Service: "s", Selected: true, PortName: "p", Missing: "m",
				Addresses: []netip.AddrPort{netip.MustParseAddrPort("[::]:1")}, FromVLAN: true, ConnectTimeout: 1, IdleTimeout: 1, MaxConnections: 1,
				HealthCheck: &HealthCheck{1, 1, 1, 1},
			}},
		}
	}
	checkEqual(t, whole, func(a, b *ProxyServer) bool { return a.equal(b) }, 37)
}

// TestNamesakesInheritNothing makes a hosted cluster anew under the name of one whose
// applications had an address: that may be somebody else's by now.
func TestNamesakesInheritNothing(t *testing.T) {
	infra := &v1alpha1.Infra{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}}
	infra.Spec.HostedClusterRef = &v1alpha1.HostedClusterReference{Namespace: "clusters", Name: "demo"}
	infra.Spec.NetworkConfig.CIDR = "192.0.2.0/24"
	infra.Spec.AppsIngress = &v1alpha1.AppsIngress{Enabled: true}
	infra.Status.AppsIngress = &v1alpha1.AppsIngressStatus{ExternalIP: "192.0.2.9"}
	silent := *infra
	silent.Status.AppsIngress = nil
	addresses := func(uid types.UID, infra *v1alpha1.Infra, last map[string][]netip.Addr) (*Snapshot, int) {
		hc := &objects.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo", UID: uid}}
		hc.Spec.DNS.BaseDomain = "example.com"
		in := &Objects{HostedClusters: []*objects.HostedCluster{hc}, Infras: []*v1alpha1.Infra{infra}, LastGood: last}
		s := Build(in, Options{Apps: &AppsOptions{}})
		return s, len(s.Clusters[0].Apps.Addresses)
	}
	first, n := addresses("one", infra, nil)
	if n != 1 {
		t.Fatalf("%d addresses: %v", n, first.Problems)
	}
	if _, n := addresses("one", &silent, first.LastGood()); n != 1 {
		t.Errorf("the cluster itself keeps %d addresses", n)
	}
	if _, n := addresses("two", &silent, first.LastGood()); n != 0 {
		t.Errorf("its namesake inherits %d addresses", n)
	}
}

// TestNodePortThatIsAllocatedLater gives a Service its node port after the HostedCluster was
// read: nothing in the HostedCluster changes then.
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
	b := NewBuilder(Options{})
	for _, want := range []int32{0, 32691, 0, 30091} {
		s := b.Build(&Objects{HostedClusters: []*objects.HostedCluster{hc}, Services: []*objects.Service{service(want)}})
		i := slices.IndexFunc(s.Clusters[0].Hostnames, func(h Hostname) bool { return h.Name == "node.example.com" })
		if got := s.Clusters[0].Hostnames[i].Endpoints[0].Port; got != want {
			t.Errorf("konnectivity is on port %d, want %d", got, want)
		}
	}
}

// checkEqual changes every part of a value in turn.
func checkEqual[T any](t *testing.T, whole func() *T, equal func(a, b *T) bool, parts int) {
	t.Helper()
	if !equal(whole(), whole()) {
		t.Fatal("it does not equal its like")
	}
	changes := 0
	walk(reflect.ValueOf(whole()), "", func(path string) {
		changes++
		c := whole()
		n := 0
		walk(reflect.ValueOf(c), "", func(string) { n++ }, func(v reflect.Value) bool { return n == changes && change(v) })
		if equal(c, whole()) || equal(whole(), c) {
			t.Errorf("a change of %s is no difference", path)
		}
	}, func(reflect.Value) bool { return false })
	if changes < parts {
		t.Errorf("only %d parts were changed", changes)
	}
}

// walk calls leaf for everything in v that has no parts, and then change for it, until
// that reports that it has changed it.
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

// change gives v another value.
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
