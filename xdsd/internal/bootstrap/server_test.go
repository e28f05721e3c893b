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

// node identifies an Envoy, as in the first request of a stream.
type node struct{ id, cluster string }

// adsServer is a minimal ADS server. It answers the first request for each type of a stream with all its resources of
// that type.
type adsServer struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	resources map[string][]*discoveryv3.Resource // by type URL
	streams   chan node                          // receives the node of each new stream
}

// serve runs an adsServer on the listener until the test ends.
func serve(t *testing.T, listener net.Listener, resources map[string][]*discoveryv3.Resource) *adsServer {
	t.Helper()
	g := grpc.NewServer()
	s := &adsServer{resources: resources, streams: make(chan node, 100)}
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

func (s *adsServer) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
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
			continue // an ACK
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

// nextStream waits until an Envoy opens a stream, and returns its node.
func (s *adsServer) nextStream(t *testing.T) node {
	t.Helper()
	select {
	case n := <-s.streams:
		return n
	case <-timeoutContext(t).Done():
		t.Fatal("no Envoy connected")
		return node{}
	}
}

// resource returns message as a delta xDS resource.
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
	t.Cleanup(func() { _ = l.Close() }) // fails if the server has closed it already
	return l
}
