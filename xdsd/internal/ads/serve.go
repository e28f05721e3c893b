package ads

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Serve serves peers that are believed, whatever they call themselves: those that
// can open a Unix socket. It closes the listener, and returns when the context ends,
// with everything that it started. It returns nil unless the listener fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if network := l.Addr().Network(); network != "unix" {
		_ = l.Close()
		return fmt.Errorf("serving on %s %s without TLS: only peers on a Unix socket are believed", network, l.Addr())
	}
	return s.serve(ctx, l, insecure.NewCredentials(), anybody)
}

// ServeTLS serves peers that show a certificate, and to each only the proxy that its
// certificate is of (see ProxyURI). TLS is 1.3 or refused. A certificate is looked at
// when a connection begins, not when it expires. ServeTLS returns as Serve does.
func (s *Server) ServeTLS(ctx context.Context, l net.Listener, c *Certificates) error {
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { c.follow(ctx) })
	creds := credentials.NewTLS(&tls.Config{
		MinVersion:         tls.VersionTLS13,
		NextProtos:         []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.config(), nil },
	})
	return s.serve(ctx, l, &handshakes{TransportCredentials: creds, log: s.log}, certified)
}

func anybody(context.Context) (string, error) { return "", nil }

func (s *Server) serve(ctx context.Context, l net.Listener, creds credentials.TransportCredentials, identify func(context.Context) (string, error)) error {
	server := grpc.NewServer(
		grpc.Creds(creds),
		// Both ends find out that the other is gone; Envoy may ping this often.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 60 * time.Second, Timeout: 20 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 15 * time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(100), // on one connection, where Envoy has one
		grpc.ConnectionTimeout(20*time.Second),
		grpc.WaitForHandlers(true),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(server, &service{server: s, identify: identify})

	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { s.expireUntil(ctx) })
	// Stop and not GracefulStop: a stream ends when Envoy ends it, which is never.
	wait.Go(func() { <-ctx.Done(); server.Stop() })

	s.log.Info("serving ADS", "network", l.Addr().Network(), "address", l.Addr().String())
	if err := server.Serve(l); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serving ADS on %s: %w", l.Addr(), err)
	}
	return nil
}
