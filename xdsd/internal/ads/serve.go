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

// Serve serves ADS on a Unix socket. Peers are not authenticated: whoever can open the
// socket gets the configuration of any proxy. Serve closes the listener, and returns
// when the context ends and everything that it started has stopped. It returns nil
// unless the listener fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if network := l.Addr().Network(); network != "unix" {
		_ = l.Close()
		return fmt.Errorf("serving ADS on %s %s: only Unix sockets are supported", network, l.Addr())
	}
	server := grpc.NewServer(
		// Both ends find out that the other is gone; Envoy may ping this often.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 60 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(100), // on one connection, where Envoy has one
		grpc.ConnectionTimeout(20*time.Second),
		grpc.WaitForHandlers(true),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, &service{server: s})

	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { s.expireUntil(ctx) })
	// Stop and not GracefulStop: a stream ends when Envoy ends it, which is never.
	wait.Go(func() { <-ctx.Done(); server.Stop() })

	s.log.Info("serving ADS", "socket", l.Addr().String())
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving ADS on %s: %w", l.Addr(), err)
	}
	return nil
}
