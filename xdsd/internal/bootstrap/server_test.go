package bootstrap_test

import (
	"net"
	"strconv"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// node is that of a stream's first request.
type node struct{ id, cluster string }

// server is the least that Envoy takes for an xdsd: it answers what is first
// asked for a type with all there is of it.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	resources map[string][]*discoveryv3.Resource // by type
	streams   chan node                          // all that began
}

// serve starts a server at the listener, until the test ends.
func serve(t *testing.T, listener net.Listener, resources map[string][]*discoveryv3.Resource) *server {
	t.Helper()
	g := grpc.NewServer()
	s := &server{resources: resources, streams: make(chan node, 100)}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("serving xDS: %v", err)
		}
	})
	return s
}

func (s *server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	answered := map[string]bool{}
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(answered) == 0 {
			s.streams <- node{req.GetNode().GetId(), req.GetNode().GetCluster()}
		}
		if answered[req.GetTypeUrl()] {
			continue // an acknowledgement
		}
		answered[req.GetTypeUrl()] = true
		if err := stream.Send(&discoveryv3.DeltaDiscoveryResponse{
			TypeUrl:           req.GetTypeUrl(),
			Nonce:             strconv.Itoa(len(answered)),
			SystemVersionInfo: "1",
			Resources:         s.resources[req.GetTypeUrl()],
		}); err != nil {
			return err
		}
	}
}

// next waits for a client.
func (s *server) next(t *testing.T) node {
	t.Helper()
	select {
	case began := <-s.streams:
		return began
	case <-soon(t).Done():
		t.Fatal("no client came")
		return node{}
	}
}

// resource wraps what a server has to give.
func resource(t *testing.T, name string, message proto.Message) *discoveryv3.Resource {
	t.Helper()
	packed, err := anypb.New(message)
	if err != nil {
		t.Fatal(err)
	}
	return &discoveryv3.Resource{Name: name, Version: "1", Resource: packed}
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // by then the server may have
	return l
}
