package ads

import (
	"fmt"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
)

// benchEnvoy connects a client that subscribes to all clusters and listeners and to the endpoints of names. next
// returns the next response, after acknowledging it without decoding the resources.
func benchEnvoy(b *testing.B, s *Server, names []string) (next func() *discoveryv3.DeltaDiscoveryResponse) {
	b.Helper()
	conn, _ := serve(b, s)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	send := func(r *discoveryv3.DeltaDiscoveryRequest) {
		if err := stream.Send(r); err != nil {
			b.Fatal(err)
		}
	}
	next = func() *discoveryv3.DeltaDiscoveryResponse {
		r, err := stream.Recv()
		if err != nil {
			b.Fatal(err)
		}
		send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
		return r
	}
	send(&discoveryv3.DeltaDiscoveryRequest{Node: nodeOf(tenant, "envoy-0"), TypeUrl: resource.ClusterType})
	next()
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names})
	next()
	send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.ListenerType})
	next()
	awaitProxy(b, s, tenant, current(1))
	return next
}

// BenchmarkEndpointChange measures from the change until the client has received the response, and includes the
// client's allocations.
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint("clusters=", n), func(b *testing.B) {
			s := newServer(b, Options{})
			r, names := manyClusters(n)
			for _, name := range names {
				r.Endpoints = append(r.Endpoints, endpoints(name, "10.0.0.1"))
			}
			s.Set(tenant, r)
			next := benchEnvoy(b, s, names)
			variants := []string{"10.0.0.2", "10.0.0.1"}
			size := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				setEndpoints(s, endpoints(names[0], variants[i%2]))
				size = proto.Size(next())
			}
			b.ReportMetric(float64(size), "wire-B/op")
		})
	}
}

func BenchmarkFilterChainChange(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint("routes=", n), func(b *testing.B) {
			s := newServer(b, Options{})
			r, names := manyClusters(n)
			s.Set(tenant, r)
			next := benchEnvoy(b, s, names)
			variants := []*listenerv3.Listener{
				listener("tls", 443, append(names[:n:n], "more")...), listener("tls", 443, names...),
			}
			size := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Listeners = []*listenerv3.Listener{variants[i%2]}
				s.Set(tenant, r)
				size = proto.Size(next())
			}
			b.ReportMetric(float64(size), "wire-B/op")
		})
	}
}

func BenchmarkEqualSet(b *testing.B) {
	s := newServer(b, Options{})
	r, _ := manyClusters(1000)
	s.Set(tenant, r)
	b.ReportAllocs()
	for b.Loop() {
		s.Set(tenant, r)
	}
}
