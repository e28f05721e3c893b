package bootstrap_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/densityops/oooi/test/lab"
)

// A stream is what a server has seen of a client.
type stream struct {
	node, cluster string
	serial        string // of the client's certificate
}

// server is the least that Envoy takes for an xdsd: it answers what is first
// asked for a type with all there is of it.
type server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	resources map[string][]*discoveryv3.Resource // by type
	streams   chan stream                        // all that began
}

// serve starts a server at the listener; stop ends it.
func serve(t *testing.T, listener net.Listener, config *tls.Config, resources map[string][]*discoveryv3.Resource) (s *server, stop func()) {
	t.Helper()
	var options []grpc.ServerOption
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	g := grpc.NewServer(options...)
	s = &server{resources: resources, streams: make(chan stream, 100)}
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(listener) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		g.Stop()
		if err := <-done; err != nil {
			t.Errorf("serving xDS: %v", err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func (s *server) DeltaAggregatedResources(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	answered := map[string]bool{}
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		if len(answered) == 0 {
			s.streams <- began(stream.Context(), req)
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

func began(ctx context.Context, req *discoveryv3.DeltaDiscoveryRequest) stream {
	s := stream{node: req.GetNode().GetId(), cluster: req.GetNode().GetCluster()}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			s.serial = info.State.PeerCertificates[0].SerialNumber.String()
		}
	}
	return s
}

// next waits for a client.
func (s *server) next(t *testing.T) stream {
	t.Helper()
	select {
	case began := <-s.streams:
		return began
	case <-soon(t).Done():
		t.Fatal("no client came")
		return stream{}
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

// files is a folder as a kubelet makes it of a Secret: each file is a link
// through ..data, which is a link itself and gets replaced.
type files struct{ dir string }

func newFiles(t *testing.T, dir string) files {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return files{dir}
}

// rotate puts a new certificate into the folder, and returns its serial number.
func (f files) rotate(t *testing.T, ca *lab.CA, names ...string) string {
	t.Helper()
	cert, key := ca.Issue(t, names...)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	serial := parsed.SerialNumber.String()
	data := filepath.Join(f.dir, ".."+serial)
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM()} {
		if err := os.WriteFile(filepath.Join(data, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(f.dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(f.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	return serial
}
