package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
)

// LogLevels sets the log level of an Envoy to what its ProxyServer says, when either is
// new. What somebody sets at the admin interface meanwhile, to look into something, stays.
type LogLevels struct {
	// Pod is the node.id of the Envoy.
	Pod string
	// Proxy is the ProxyServer, "namespace/name".
	Proxy string
	// Admin is the Envoy's.
	Admin *Admin
	// Store has the level, and ADS knows when an Envoy has connected.
	Store *watch.Store
	ADS   *ads.Server
	// Log is where faults go, once each.
	Log *slog.Logger

	done    setting // what was applied last
	failure string  // why the last one was not
}

// levelRetry is how soon a level is set again that could not be.
const levelRetry = 10 * time.Second

// setting is a level, and the connection of the Envoy that has it.
type setting struct {
	connected time.Time
	level     v1alpha1.LogLevel
}

// Run sets levels until the context ends.
func (l *LogLevels) Run(ctx context.Context) {
	connections, cancel := l.ADS.Subscribe()
	defer cancel()
	snapshots := make(chan struct{}, 1)
	defer l.Store.Subscribe(func() {
		select {
		case snapshots <- struct{}{}:
		default:
		}
	})()
	retry := time.NewTicker(levelRetry)
	defer retry.Stop()
	for {
		if want := l.wanted(); want != l.done && want.level != "" && !want.connected.IsZero() {
			l.apply(ctx, want)
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

// wanted is the level as it is to be; without an Envoy, or a ProxyServer, part of it is zero.
func (l *LogLevels) wanted() setting {
	var want setting
	if s := l.Store.Snapshot(); s != nil {
		if p := s.ProxyServer(l.Proxy); p != nil {
			want.level = p.LogLevel
		}
	}
	served, _ := l.ADS.ProxyState(l.Proxy)
	for _, e := range served.Envoys {
		if e.ID == l.Pod {
			want.connected = e.Connected
		}
	}
	return want
}

func (l *LogLevels) apply(ctx context.Context, want setting) {
	log := l.Log.With("proxy", l.Proxy, "node", l.Pod, "level", string(want.level))
	changed, err := l.Admin.SetLogLevel(ctx, want.level)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if err.Error() != l.failure {
			log.Error("setting Envoy's log level failed", "err", err)
		}
		l.failure = err.Error()
		return
	}
	if changed {
		log.Info("Envoy's log level set")
	}
	l.done, l.failure = want, ""
}
