package ads

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// Serve serves ADS on a Unix socket until the context ends, and returns after all streams and goroutines have ended.
// It closes l. Clients are not authenticated: a process that can open the socket can read the configuration of every
// proxy. It returns an error if l is not a Unix socket or fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if network := l.Addr().Network(); network != "unix" {
		_ = l.Close()
		return fmt.Errorf("serving ADS on %s %s: only Unix sockets are supported", network, l.Addr())
	}
	server := grpc.NewServer(
		// Both sides detect a lost peer. Envoy may send pings every 15 s, even without a stream.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 60 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(100), // per connection; an Envoy opens one stream
		grpc.ConnectionTimeout(20*time.Second),
		grpc.WaitForHandlers(true),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, &service{server: s})

	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	// Stop, not GracefulStop: Envoy keeps its stream open for as long as it runs.
	wait.Go(func() { <-ctx.Done(); server.Stop() })

	s.log.Info("serving ADS", "socket", l.Addr().String())
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving ADS on %s: %w", l.Addr(), err)
	}
	return nil
}
