package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/coredhcp/coredhcp/config"
	"github.com/coredhcp/coredhcp/server"
)

// serve6 serves DHCPv6 by CoreDHCP's own server, until the context ends. That sets the
// plugins up itself.
func serve6(ctx context.Context, c *config.ServerConfig, log *slog.Logger) error {
	s, err := server.Start(&config.Config{Server6: c})
	if err != nil {
		return fmt.Errorf("server6: %w", err)
	}
	log.Info("serving DHCPv6", "addresses", len(c.Addresses))
	ended := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
			s.Close()
		case <-ended:
		}
	}()
	err = s.Wait()
	close(ended)
	<-stopped
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("server6: %w", err)
	}
	return nil
}
