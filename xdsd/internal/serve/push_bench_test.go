package serve

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/ads"
	"github.com/densityops/oooi/xdsd/internal/envoy"
)

// proxyWithRoutes returns a proxy with n routes, each with its own upstream.
func proxyWithRoutes(n int) *model.ProxyServer {
	owner := model.Ref{Kind: "Infra", Namespace: "clusters", Name: "bench"}
	p := &model.ProxyServer{Ref: model.Ref{Kind: "ProxyServer", Namespace: "clusters", Name: "bench"}}
	l := &model.Listener{Port: 443}
	for i := range n {
		u := &model.Upstream{
			Name: fmt.Sprintf("clusters-bench/r%05d/443", i), Owner: owner, Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.128.0.1:8443")},
			FromVLAN: true, ConnectTimeout: 5 * time.Second, IdleTimeout: 24 * time.Hour,
			HealthCheck: &model.HealthCheck{Interval: 5 * time.Second, Timeout: 2 * time.Second, UnhealthyAfter: 2, HealthyAfter: 1},
		}
		p.Upstreams = append(p.Upstreams, u)
		l.Routes = append(l.Routes, model.Route{Host: fmt.Sprintf("r%05d.apps.mgmt.example.com", i), Upstream: u.Name, Owner: owner})
	}
	p.Listeners = []*model.Listener{l}
	return p
}

// setProxy translates a proxy and passes it to the server, as a Feeder does.
func setProxy(b *testing.B, server *ads.Server, translator *envoy.Translator, p *model.ProxyServer, endpoints ...*endpointv3.ClusterLoadAssignment) {
	b.Helper()
	resources, omitted := translator.Translate(p)
	if omitted != nil {
		b.Fatal(omitted)
	}
	resources.Endpoints = endpoints
	server.Set(p.Key(), resources)
}

// pushClient is an ADS client that acknowledges all responses without decoding the resources.
type pushClient struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	bytes  int // received so far
}

// connectPush returns a client that has received all resources of a proxy.
func connectPush(ctx context.Context, b *testing.B, conn *grpc.ClientConn, p *model.ProxyServer) *pushClient {
	b.Helper()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		b.Fatal(err)
	}
	c := &pushClient{stream: stream}
	names := make([]string, len(p.Upstreams))
	for i, u := range p.Upstreams {
		names[i] = u.Name
	}
	node := &corev3.Node{Cluster: p.Key(), Id: "bench"}
	c.send(b, &discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: resource.ClusterType})
	c.receive(b)
	c.send(b, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointType, ResourceNamesSubscribe: names})
	c.receive(b)
	c.send(b, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.ListenerType})
	c.receive(b)
	return c
}

func (c *pushClient) send(b *testing.B, r *discoveryv3.DeltaDiscoveryRequest) {
	b.Helper()
	if err := c.stream.Send(r); err != nil {
		b.Fatal(err)
	}
}

func (c *pushClient) receive(b *testing.B) {
	b.Helper()
	r, err := c.stream.Recv()
	if err != nil {
		b.Fatal(err)
	}
	c.bytes += proto.Size(r)
	c.send(b, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()})
}

// BenchmarkPush measures the time from a change of the model until the client has received it: a whole proxy, one more
// host, and one endpoint. The results include the client.
func BenchmarkPush(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		p := proxyWithRoutes(n)
		var endpoints []*endpointv3.ClusterLoadAssignment
		for _, u := range p.Upstreams {
			endpoints = append(endpoints, envoy.Endpoints(u, nil))
		}
		b.Run(fmt.Sprintf("Full/clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				server, conn := pushServer(ctx, b)
				setProxy(b, server, envoy.NewTranslator(envoy.Options{}), p, endpoints...)
				size = connectPush(ctx, b, conn, p).bytes
				_ = conn.Close()
				cancel()
			}
			b.ReportMetric(float64(size), "wire-B/op")
		})
		server, conn := pushServer(b.Context(), b)
		translator := envoy.NewTranslator(envoy.Options{})
		setProxy(b, server, translator, p, endpoints...)
		c := connectPush(b.Context(), b, conn, p)
		withHost := *p
		withHost.Listeners = []*model.Listener{{Port: 443, Routes: append(p.Listeners[0].Routes[:n:n], model.Route{Host: "zz.example.com", Upstream: p.Upstreams[0].Name})}}
		b.Run(fmt.Sprintf("OneHost/clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			before, loops := c.bytes, 0
			for b.Loop() {
				setProxy(b, server, translator, []*model.ProxyServer{&withHost, p}[loops%2])
				c.receive(b)
				loops++
			}
			b.ReportMetric(float64(c.bytes-before)/float64(loops), "wire-B/op")
			if loops%2 == 1 { // restore p for the next benchmark
				setProxy(b, server, translator, p)
				c.receive(b)
			}
		})
		otherEndpoint := *p.Upstreams[0]
		otherEndpoint.Addresses = []netip.AddrPort{netip.MustParseAddrPort("10.128.0.2:8443")}
		b.Run(fmt.Sprintf("OneEndpoint/clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			before, loops := c.bytes, 0
			for b.Loop() {
				u := []*model.Upstream{&otherEndpoint, p.Upstreams[0]}[loops%2]
				server.UpdateEndpoints(p.Key(), []*endpointv3.ClusterLoadAssignment{envoy.Endpoints(u, nil)})
				c.receive(b)
				loops++
			}
			b.ReportMetric(float64(c.bytes-before)/float64(loops), "wire-B/op")
			if loops%2 == 1 {
				server.UpdateEndpoints(p.Key(), endpoints[:1])
				c.receive(b)
			}
		})
		_ = conn.Close()
	}
}

// pushServer starts an ADS server on a new socket, and returns it with a connection to it.
func pushServer(ctx context.Context, b *testing.B) (*ads.Server, *grpc.ClientConn) {
	b.Helper()
	server, err := ads.New(ads.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	socket := filepath.Join(lab.TempDir(b), "ads.sock")
	l, err := ads.ListenUnix(ctx, socket)
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(ctx, l) }() // until the context ends
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		b.Fatal(err)
	}
	return server, conn
}
