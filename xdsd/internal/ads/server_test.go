package ads

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads/adstest"
)

const tenant = "ns/one"

func TestNothingIsSentBeforeTheFirstSet(t *testing.T) {
	s := newServer(t, Options{})
	conn, _ := serve(t, s)
	c := connect(t, conn, adstest.Options{Cluster: tenant})
	lab.Must(t, c.Subscribe(resource.EndpointType, []string{"a"}, nil))
	awaitProxy(t, s, tenant, func(Proxy) bool { return true })
	s.Set(tenant, Resources{Clusters: clusters("b")})
	view := await(t, c, func(v *adstest.View) bool { return len(v.Responses) >= 3 })
	wantSent(t, sortedByKind(view.Responses), "cluster b\nlistener\nendpoint b\n")
}

// sortedByKind sorts responses by type, because the order in which responses of different types arrive varies.
func sortedByKind(responses []adstest.Response) []adstest.Response {
	var sorted []adstest.Response
	for _, typeURL := range []string{resource.ClusterType, resource.ListenerType, resource.RouteType, resource.EndpointType} {
		for _, r := range responses {
			if r.Type == typeURL {
				sorted = append(sorted, r)
			}
		}
	}
	return sorted
}

func TestOnlyChangedResourcesAreSent(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Resources)
		want   string // on the wire
	}{
		{"nothing", func(*Resources) {}, ""},
		{"another order", func(r *Resources) {
			r.Clusters[0], r.Clusters[1] = r.Clusters[1], r.Clusters[0]
			r.Routes[0], r.Routes[1] = r.Routes[1], r.Routes[0]
		}, ""},
		{"cluster added", func(r *Resources) { r.Clusters = append(r.Clusters, clusters("c")...) }, "cluster c\nendpoint c\n"},
		{
			// Envoy replaces the cluster and needs its endpoints again, although it does not request them.
			"cluster changed", func(r *Resources) { r.Clusters[0] = cluster("a", time.Minute) }, "cluster a\nendpoint a\n",
		},
		{"cluster removed", func(r *Resources) { r.Clusters = r.Clusters[1:] }, "cluster -a\n"},
		{"listener added", func(r *Resources) { r.Listeners = append(r.Listeners, listener("more", 444, "a")) }, "listener more\n"},
		{"listener changed", func(r *Resources) { r.Listeners[0] = listener("tls", 443, "a") }, "listener tls\n"},
		{"listener removed", func(r *Resources) { r.Listeners = r.Listeners[1:] }, "listener -tls\n"},
		{"route changed", func(r *Resources) { r.Routes[0] = route("r1", "z.example.com") }, "route r1\n"},
		{"route added", func(r *Resources) {
			r.Listeners = append(r.Listeners, httpListener("http3", 82, "r3"))
			r.Routes = append(r.Routes, route("r3"))
		}, "listener http3\nroute r3\n"},
		{"route removed", func(r *Resources) {
			r.Listeners, r.Routes = r.Listeners[:2], r.Routes[:1]
		}, "listener -http2\nroute -r2\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, Options{Retain: time.Nanosecond})
			conn, _ := serve(t, s)
			s.Set(tenant, baseResources())
			setEndpoints(s, endpoints("a", "10.0.0.1"))
			c := connect(t, conn, adstest.Options{Cluster: tenant})
			awaitProxy(t, s, tenant, current(1))
			seen := len(c.View().Responses)

			r := baseResources()
			test.change(&r)
			s.Set(tenant, r)
			awaitProxy(t, s, tenant, func(p Proxy) bool { return current(1)(p) && len(p.Retained) == 0 })
			// Responses of a type arrive in order: when the markers have arrived, so have all responses before them.
			r.Clusters = append(r.Clusters, &clusterv3.Cluster{Name: "marker"})
			r.Listeners = append(r.Listeners, listener("marker", 1))
			s.Set(tenant, r)
			view := await(t, c, func(v *adstest.View) bool {
				return v.Resources[resource.ClusterType]["marker"] != nil && v.Resources[resource.ListenerType]["marker"] != nil
			})
			got := lines(sortedByKind(view.Responses[seen:]))
			got = strings.Replace(strings.Replace(got, "cluster marker\n", "", 1), "listener marker\n", "", 1)
			// The removal of endpoints with their cluster is sent only if the client is still subscribed to them.
			got = strings.Replace(got, "endpoint -a\n", "", 1)
			if diff := cmp.Diff(sortLines(test.want), sortLines(got)); diff != "" {
				t.Errorf("on the wire (-want +got):\n%s", diff)
			}
		})
	}
}

func sortLines(s string) []string {
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

func TestEndpointChangeSendsOneResource(t *testing.T) {
	var names []string
	var r Resources
	for i := range 200 {
		names = append(names, fmt.Sprintf("c%03d", i))
		r.Endpoints = append(r.Endpoints, endpoints(names[i], "10.0.0.1"))
	}
	r.Clusters, r.Listeners = clusters(names...), []*listenerv3.Listener{listener("tls", 443, names...)}
	s, c, _ := started(t, Options{}, r, adstest.Options{})
	before, _ := proxyState(s, tenant)
	seen := len(c.View().Responses)

	changed := endpoints(names[7], "10.0.0.1", "10.0.0.2")
	setEndpoints(s, endpoints(names[7], "10.0.0.1")) // equal
	setEndpoints(s, changed)
	after := awaitProxy(t, s, tenant, current(1))
	view := c.View()
	wantSent(t, view.Responses[seen:], "endpoint "+names[7]+"\n")
	if n := view.Responses[seen].Bytes; n >= 1000 {
		t.Errorf("%d bytes on the wire", n)
	}
	if before.Version != after.Version {
		t.Errorf("an endpoint change caused a version: %+v, before: %+v", after, before)
	}
	var got endpointv3.ClusterLoadAssignment
	if err := view.Unmarshal(resource.EndpointType, names[7], &got); err != nil || !proto.Equal(&got, changed) {
		t.Errorf("got %v, %v", &got, err)
	}
}

func TestEndpointsBelongToClusters(t *testing.T) {
	s := newServer(t, Options{})
	conn, _ := serve(t, s)
	setEndpoints(s, endpoints("a", "10.0.0.1")) // before the first Set
	s.Set(tenant, Resources{Clusters: clusters("a", "b", "c"), Endpoints: []*endpointv3.ClusterLoadAssignment{
		endpoints("a", "10.0.0.1"), endpoints("unknown", "10.0.0.1"),
	}})
	setEndpoints(s, endpoints("c", "10.0.0.1", "10.0.0.2"), endpoints("elsewhere", "10.0.0.3"))
	c := connect(t, conn, adstest.Options{Cluster: tenant})
	awaitProxy(t, s, tenant, current(1))
	for name, want := range map[string]int{"a": 1, "b": 0, "c": 2} {
		if got := hosts(t, c.View(), name); got != want {
			t.Errorf("%s has %d endpoints, want %d", name, got, want)
		}
	}
	if n := len(s.proxies[tenant].served[resource.EndpointType]); n != 3 {
		t.Errorf("%d assignments of 3 clusters", n)
	}
}

func hosts(t *testing.T, v *adstest.View, name string) (n int) {
	t.Helper()
	var m endpointv3.ClusterLoadAssignment
	lab.Must(t, v.Unmarshal(resource.EndpointType, name, &m))
	for _, locality := range m.GetEndpoints() {
		n += len(locality.GetLbEndpoints())
	}
	return n
}

func TestRemovedClustersAreRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{Retain: 10 * time.Second})
		retained := func(want ...string) {
			t.Helper()
			synctest.Wait()
			p, _ := proxyState(s, tenant)
			s.mu.Lock()
			defer s.mu.Unlock()
			served := s.proxies[tenant].served
			if diff := cmp.Diff(want, p.Retained, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("at %v, retained (-want +got):\n%s", time.Now().Second(), diff)
			}
			if n := len(served[resource.ClusterType]); n != len(served[resource.EndpointType]) {
				t.Errorf("%d clusters, but %d assignments", n, len(served[resource.EndpointType]))
			}
		}
		s.Set(tenant, Resources{Clusters: clusters("a", "b", "c")})
		setEndpoints(s, endpoints("a", "10.0.0.1"))
		retained()
		s.Set(tenant, Resources{Clusters: clusters("b", "c")})
		// A retained cluster keeps its endpoints: listeners that still use it may accept connections.
		setEndpoints(s, endpoints("a"))
		if countEndpoints(s.proxies[tenant].served[resource.EndpointType]["a"].message) == 0 {
			t.Error("a retained cluster lost its endpoints")
		}
		retained("a")
		time.Sleep(6 * time.Second)
		s.Set(tenant, Resources{Clusters: clusters("c")})
		retained("a", "b")
		time.Sleep(4 * time.Second)
		retained("b")
		s.Set(tenant, Resources{Clusters: clusters("b", "c")}) // b is added again before it expires
		retained()
		s.Set(tenant, Resources{})
		retained("b", "c")
		time.Sleep(10 * time.Second)
		retained()
	})
}

// TestChangeOrder checks that a cluster is sent before the listener that uses it, and removed after it, when it is no longer retained.
func TestChangeOrder(t *testing.T) {
	s, c, _ := started(t, Options{Retain: time.Hour}, baseResources(), adstest.Options{})
	seen := len(c.View().Responses)
	r := baseResources()
	r.Clusters, r.Listeners = append(r.Clusters, clusters("c")...), append(r.Listeners, listener("more", 444, "c"))
	for _, step := range []struct {
		change func()
		want   string
	}{
		{func() { s.Set(tenant, r) }, "cluster c\nlistener more\nendpoint c\n"},
		{func() { s.Set(tenant, baseResources()) }, "listener -more\n"},
		{func() { s.expire(time.Now().Add(time.Hour)) }, "cluster -c\nendpoint -c\n"},
	} {
		step.change()
		view := await(t, c, func(v *adstest.View) bool {
			return strings.Count(lines(v.Responses[seen:]), "\n") >= strings.Count(step.want, "\n")
		})
		awaitProxy(t, s, tenant, current(1))
		wantSent(t, view.Responses[seen:], step.want)
		seen = len(view.Responses)
	}
}

func TestNACK(t *testing.T) {
	s, c, _ := started(t, Options{}, baseResources(), adstest.Options{Reject: rejecting("tls: cannot bind", func(m *discoveryv3.Resource) bool {
		var l listenerv3.Listener
		return m.GetName() == "tls" && m.GetResource().UnmarshalTo(&l) == nil && l.GetAddress().GetSocketAddress().GetPortValue() == 666
	})})
	good, _ := proxyState(s, tenant)
	seen := len(c.View().Responses)

	// Two listeners change, and the client rejects the response with both.
	r := baseResources()
	r.Listeners[0] = listener("tls", 666, "a", "b")
	r.Listeners = append(r.Listeners, listener("more", 444, "a"))
	s.Set(tenant, r)
	p := awaitProxy(t, s, tenant, func(p Proxy) bool { return p.Envoys[0].LastNACK != nil })
	e := p.Envoys[0]
	if n := e.Types["listener"].NACK; n == nil || n.Message != "tls: cannot bind" || n.Type != "listener" || n.Time.IsZero() {
		t.Errorf("recorded %+v", n)
	}
	if e.Current || e.Version != good.Version {
		t.Errorf("after a NACK: %+v", e)
	}

	// Routes and endpoints are still sent, and the rejected response is not sent again.
	r.Routes[0] = route("r1", "z.example.com")
	s.Set(tenant, r)
	setEndpoints(s, endpoints("a", "10.0.0.1"))
	awaitProxy(t, s, tenant, func(p Proxy) bool {
		return p.Envoys[0].Types["route"].Current && p.Envoys[0].Types["endpoint"].Current
	})
	wantSent(t, sortedByKind(c.View().Responses[seen:]), "listener more tls rejected\nroute r1\nendpoint a\n")

	// The next version, which is valid, includes the resources that were rejected together with the invalid one.
	seen = len(c.View().Responses)
	r.Listeners[0] = listener("tls", 443, "a")
	s.Set(tenant, r)
	p = awaitProxy(t, s, tenant, current(1))
	if n := p.Envoys[0].LastNACK; p.Envoys[0].Types["listener"].NACK != nil || n == nil {
		t.Errorf("after the valid version: %+v", p.Envoys[0])
	}
	wantSent(t, c.View().Responses[seen:], "listener more tls\n")
}

// TestRejectedListenerIsRetried rejects a listener several times, as an Envoy does while another process uses its port. It
// must be sent again without a change, to no other Envoy, and no longer when it is accepted.
func TestRejectedListenerIsRetried(t *testing.T) {
	var busy atomic.Int32
	busy.Store(3)
	s, c, conn := started(t, Options{Retry: time.Millisecond}, baseResources(), adstest.Options{ID: "envoy-1", Reject: rejecting("busy", func(m *discoveryv3.Resource) bool {
		return m.GetName() == "late" && busy.Add(-1) >= 0
	})})
	other := connect(t, conn, adstest.Options{Cluster: tenant, ID: "envoy-2"})
	awaitProxy(t, s, tenant, current(2))
	seen, seenByOther := len(c.View().Responses), len(other.View().Responses)
	r := baseResources()
	r.Listeners = append(r.Listeners, listener("late", 1, "a"))
	s.Set(tenant, r)
	p := awaitProxy(t, s, tenant, current(2))
	if n := p.Envoys[0].Types["listener"].NACK; n != nil {
		t.Errorf("the NACK stays: %+v", n)
	}
	s.mu.Lock()
	for st := range s.proxies[tenant].streams {
		if n := st.types[resource.ListenerType].rejections; n != 0 {
			t.Errorf("the next rejection is retried as after %d earlier ones", n)
		}
	}
	s.mu.Unlock()
	wantSent(t, c.View().Responses[seen:], strings.Repeat("listener late rejected\n", 3)+"listener late\n")
	wantSent(t, other.View().Responses[seenByOther:], "listener late\n")
}

func TestChangeBeforeNACK(t *testing.T) {
	received, fixed := make(chan struct{}), make(chan struct{})
	s, c, _ := started(t, Options{}, baseResources(), adstest.Options{Reject: rejecting("no", func(m *discoveryv3.Resource) bool {
		var l listenerv3.Listener
		if m.GetName() != "bad" || m.GetResource().UnmarshalTo(&l) != nil || len(l.GetFilterChains()) > 0 {
			return false
		}
		close(received)
		<-fixed
		return true
	})})
	seen := len(c.View().Responses)
	r := baseResources()
	r.Listeners = append(r.Listeners, listener("bad", 1), listener("valid", 2))
	s.Set(tenant, r)
	<-received
	r.Listeners = append(baseResources().Listeners, listener("bad", 1, "a"), listener("valid", 2))
	s.Set(tenant, r)
	close(fixed)
	awaitProxy(t, s, tenant, current(1))
	wantSent(t, c.View().Responses[seen:], "listener bad valid rejected\nlistener bad valid\n")
}

func TestRejectedResourceIsRemoved(t *testing.T) {
	s, c, _ := started(t, Options{}, baseResources(), adstest.Options{Reject: rejecting("no", named("bad"))})
	r := baseResources()
	r.Listeners = append(r.Listeners, listener("bad", 1))
	s.Set(tenant, r)
	awaitProxy(t, s, tenant, func(p Proxy) bool { return p.Envoys[0].LastNACK != nil })
	s.Set(tenant, baseResources())
	awaitProxy(t, s, tenant, current(1))
	responses := c.View().Responses
	wantSent(t, responses[len(responses)-1:], "listener -bad\n")
}

func TestRejectedResourceIsUnsubscribed(t *testing.T) {
	s, c, _ := started(t, Options{}, baseResources(), adstest.Options{Reject: rejecting("no", named("r3"))})
	r := baseResources()
	r.Listeners, r.Routes = append(r.Listeners, httpListener("http3", 83, "r3")), append(r.Routes, route("r3"))
	s.Set(tenant, r)
	p := awaitProxy(t, s, tenant, func(p Proxy) bool {
		return p.Envoys[0].Types["route"].NACK != nil && p.Envoys[0].Types["listener"].Current
	})
	if p.Envoys[0].Version == p.Version {
		t.Error("the version counts as acknowledged without its route")
	}
	lab.Must(t, c.Subscribe(resource.RouteType, nil, []string{"r3"}))
	awaitProxy(t, s, tenant, func(p Proxy) bool { return p.Envoys[0].Types["route"].NACK == nil })
}

func TestEnvoysHaveSeparateState(t *testing.T) {
	s, one, conn := started(t, Options{}, baseResources(), adstest.Options{ID: "envoy-1"})
	two := connect(t, conn, adstest.Options{Cluster: tenant, ID: "envoy-2", Reject: rejecting("not c", named("c"))})
	first := awaitProxy(t, s, tenant, current(2))
	if diff := cmp.Diff(one.View().Names(resource.ListenerType), two.View().Names(resource.ListenerType)); diff != "" {
		t.Error(diff)
	}
	r := baseResources()
	r.Clusters = append(r.Clusters, clusters("c")...)
	s.Set(tenant, r)
	p := awaitProxy(t, s, tenant, func(p Proxy) bool { return p.Envoys[0].Current && p.Envoys[1].LastNACK != nil })
	if e := p.Envoys[0]; e.ID != "envoy-1" || e.Version != p.Version || e.LastNACK != nil {
		t.Errorf("one: %+v", e)
	}
	if e := p.Envoys[1]; e.ID != "envoy-2" || e.Version != first.Version || e.Current {
		t.Errorf("two: %+v", e)
	}
	two.Close()
	older := awaitProxy(t, s, tenant, current(1)).Envoys[0]
	// Of two streams with the same ID, only the newer one is reported.
	connect(t, conn, adstest.Options{Cluster: tenant, ID: "envoy-1"})
	awaitProxy(t, s, tenant, func(p Proxy) bool { return current(1)(p) && p.Envoys[0].Connected.After(older.Connected) })
	awaitStreams(t, s, 2)
}

// awaitStreams waits until n streams of the tenant's proxy are connected.
func awaitStreams(t *testing.T, s *Server, n int) {
	t.Helper()
	awaitProxy(t, s, tenant, func(Proxy) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.proxies[tenant].streams) == n
	})
}

func TestProxiesAreIsolated(t *testing.T) {
	s := newServer(t, Options{})
	conn, _ := serve(t, s)
	s.Set(tenant, Resources{Clusters: clusters("mine", "shared"), Listeners: []*listenerv3.Listener{listener("l1", 443)}})
	s.Set("ns/two", Resources{Clusters: clusters("theirs", "shared"), Listeners: []*listenerv3.Listener{httpListener("l2", 80, "r2")}, Routes: []*routev3.RouteConfiguration{route("r2")}})
	c := connect(t, conn, adstest.Options{Cluster: tenant})
	awaitProxy(t, s, tenant, current(1))
	for typeURL, name := range map[string]string{
		resource.EndpointType: "theirs", resource.RouteType: "r2", resource.ClusterType: "theirs", resource.ListenerType: "l2",
	} {
		lab.Must(t, c.Subscribe(typeURL, []string{name}, nil))
	}
	setEndpoints(s, endpoints("theirs", "10.0.0.4"), endpoints("shared", "10.0.0.5"))
	s.UpdateEndpoints("ns/two", []*endpointv3.ClusterLoadAssignment{endpoints("theirs", "10.0.0.4"), endpoints("shared", "10.0.0.5")})
	// The Envoy is current only after the requests before this Set were handled as well.
	s.Set(tenant, Resources{Clusters: clusters("mine", "shared", "last"), Listeners: []*listenerv3.Listener{listener("l1", 443), listener("last", 1)}})
	awaitProxy(t, s, tenant, current(1))
	view := c.View()
	got := map[string][]string{}
	for _, typeURL := range []string{resource.ListenerType, resource.ClusterType, resource.RouteType, resource.EndpointType} {
		got[kinds[typeURL]] = view.Names(typeURL)
	}
	want := map[string][]string{"listener": {"l1", "last"}, "cluster": {"last", "mine", "shared"}, "route": nil, "endpoint": {"last", "mine", "shared"}}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, r := range view.Responses {
		if strings.Contains(lines([]adstest.Response{r}), "theirs") {
			t.Errorf("sent %s", lines([]adstest.Response{r}))
		}
	}
}

func TestReconnectedEnvoyIsSentOnlyDifferences(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Resources)
		want   string
	}{
		// Envoy waits for a response to its wildcard requests for listeners and clusters, even if it is empty.
		{"nothing", func(*Resources) {}, "cluster\nlistener\n"},
		{"one cluster", func(r *Resources) { r.Clusters[1] = cluster("b", time.Minute) }, "cluster b\nlistener\nendpoint b\n"},
		{"a removed cluster", func(r *Resources) { r.Clusters = r.Clusters[1:] }, "cluster -a\nlistener\nendpoint -a\n"},
		{"one route", func(r *Resources) { r.Routes[1] = route("r2") }, "cluster\nlistener\nroute r2\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := baseResources()
			var before *adstest.View
			start := func() (*Server, *adstest.Client, func()) {
				s := newServer(t, Options{})
				conn, stop := serve(t, s)
				s.Set(tenant, r)
				setEndpoints(s, endpoints("a", "10.0.0.1"), endpoints("b", "10.0.0.2"))
				c := connect(t, conn, adstest.Options{Cluster: tenant, Resume: before})
				return s, c, stop
			}
			s, c, stop := start()
			version := awaitProxy(t, s, tenant, current(1)).Version
			before = c.View()
			stop()

			test.change(&r)
			s, c, _ = start()
			p := awaitProxy(t, s, tenant, func(p Proxy) bool {
				return current(1)(p) && strings.Count(lines(c.View().Responses), "\n") >= strings.Count(test.want, "\n")
			})
			wantSent(t, sortedByKind(c.View().Responses), test.want)
			if test.name == "nothing" && p.Version != version {
				t.Errorf("equal resources have version %s after a restart, and had %s before", p.Version, version)
			}
		})
	}
}

func TestDeleteDisconnectsEnvoys(t *testing.T) {
	s, c, conn := started(t, Options{}, baseResources(), adstest.Options{})
	s.Delete(tenant)
	s.Delete("ns/unknown")
	view, err := c.Await(timeoutContext(t), func(*adstest.View) bool { return false })
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("the stream ended with %v", err)
	}
	if len(s.State()) != 0 {
		t.Errorf("state after deleting the only proxy: %+v", s.State())
	}
	// The client reconnects, and nothing is sent to it until the next Set.
	c = connect(t, conn, adstest.Options{Cluster: tenant, Resume: view})
	awaitProxy(t, s, tenant, func(p Proxy) bool { return len(p.Envoys) == 1 && p.Version == "" })
	r := baseResources()
	r.Clusters = append(r.Clusters, clusters("c")...)
	s.Set(tenant, r)
	view = await(t, c, func(v *adstest.View) bool { return len(v.Responses) == 3 })
	wantSent(t, sortedByKind(view.Responses), "cluster c\nlistener\nendpoint c\n")
}

func TestProxyWithoutSetIsDeletedWithItsLastEnvoy(t *testing.T) {
	s := newServer(t, Options{})
	conn, _ := serve(t, s)
	c := connect(t, conn, adstest.Options{Cluster: "ns/ghost"})
	awaitProxy(t, s, "ns/ghost", func(p Proxy) bool { return len(p.Envoys) == 1 })
	changed, cancel := s.Subscribe()
	defer cancel()
	c.Close()
	for ctx := timeoutContext(t); len(s.State()) > 0; {
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("the proxy still exists: %+v", s.State())
		}
	}
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	for _, test := range []struct {
		name    string
		options adstest.Options
		request *discoveryv3.DeltaDiscoveryRequest
		want    codes.Code
	}{
		{"no node.cluster", adstest.Options{}, nil, codes.InvalidArgument},
		{"a type that is not served", adstest.Options{Cluster: tenant}, &discoveryv3.DeltaDiscoveryRequest{
			TypeUrl: resource.SecretType,
		}, codes.InvalidArgument},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t, Options{})
			s.Set(tenant, baseResources())
			conn, _ := serve(t, s)
			c := connect(t, conn, test.options)
			if test.request != nil {
				lab.Must(t, c.Send(test.request))
			}
			if _, err := c.Await(timeoutContext(t), func(*adstest.View) bool { return false }); status.Code(err) != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}
