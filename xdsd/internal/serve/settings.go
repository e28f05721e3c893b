package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
)

// Settings sets the log level and the access log of an Envoy to those of its ProxyServer, whenever they change or the
// Envoy connects. In between, settings that a user makes at the admin interface stay.
type Settings struct {
	// Pod is the node.id of the Envoy.
	Pod string
	// Proxy is the ProxyServer, "namespace/name".
	Proxy string
	// Admin is the Envoy's admin interface.
	Admin *Admin
	// Store has the ProxyServer's settings, and ADS has the time at which the Envoy connected.
	Store *watch.Store
	ADS   *ads.Server
	// Log is the logger. A repeated error is logged once.
	Log *slog.Logger

	applied settings // last settings that were applied
	failure string   // last error; empty after a success
}

// settingsRetryInterval is the interval at which failed settings are retried.
const settingsRetryInterval = 10 * time.Second

// settings are those of an Envoy with a certain connection. After a restart of Envoy its connection differs, so that
// they are set again.
type settings struct {
	connected time.Time // zero if the Envoy is not connected
	level     v1alpha1.LogLevel
	accessLog bool
}

// Run applies settings until the context ends. It logs errors and retries every 10 s.
func (s *Settings) Run(ctx context.Context) {
	connections, cancel := s.ADS.Subscribe()
	defer cancel()
	snapshots := make(chan struct{}, 1)
	defer s.Store.Subscribe(func() {
		select {
		case snapshots <- struct{}{}:
		default:
		}
	})()
	retry := time.NewTicker(settingsRetryInterval)
	defer retry.Stop()
	for {
		if p := proxyOf(s.Store, s.Proxy); p != nil {
			_, connection := s.ADS.Envoy(s.Proxy, s.Pod)
			desired := settings{connection.Connected, p.LogLevel, p.AccessLog}
			if desired != s.applied && !desired.connected.IsZero() {
				s.apply(ctx, desired)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-connections:
		case <-snapshots:
		case <-retry.C:
		}
	}
}

func (s *Settings) apply(ctx context.Context, desired settings) {
	log := s.Log.With("proxy", s.Proxy, "node", s.Pod)
	var err error
	if desired.level != "" {
		err = s.Admin.SetLogLevel(ctx, desired.level)
	}
	if err == nil {
		err = s.Admin.SetAccessLog(ctx, desired.accessLog)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if err.Error() != s.failure {
			log.Error("setting Envoy's log level and access log failed", "err", err)
		}
		s.failure = err.Error()
		return
	}
	if desired.level != s.applied.level {
		log.Info("Envoy's log level set", "level", string(desired.level))
	}
	if desired.accessLog != s.applied.accessLog {
		log.Info("Envoy's access log set", "enabled", desired.accessLog)
	}
	s.applied, s.failure = desired, ""
}
