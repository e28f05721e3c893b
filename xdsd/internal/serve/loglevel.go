package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/xdsd/internal/ads"
)

// LogLevels sets the log level of an Envoy to that of its ProxyServer, whenever the level changes or the Envoy
// connects. In between, levels that a user sets at the admin interface stay.
type LogLevels struct {
	// Pod is the node.id of the Envoy.
	Pod string
	// Proxy is the ProxyServer, "namespace/name".
	Proxy string
	// Admin is the Envoy's admin interface.
	Admin *Admin
	// Store has the ProxyServer's log level, and ADS has the time at which the Envoy connected.
	Store *watch.Store
	ADS   *ads.Server
	// Log is the logger. A repeated error is logged once.
	Log *slog.Logger

	applied levelSetting // last setting that was applied
	failure string       // last error; empty after a success
}

// levelRetryInterval is the interval at which a failed setting is retried.
const levelRetryInterval = 10 * time.Second

// A levelSetting is a log level of an Envoy with a certain connection. After a restart of Envoy its connection differs,
// so that the level is set again.
type levelSetting struct {
	connected time.Time
	level     v1alpha1.LogLevel
}

// Run sets levels until the context ends. It logs errors and retries every 10 s.
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
	retry := time.NewTicker(levelRetryInterval)
	defer retry.Stop()
	for {
		if desired := l.desired(); desired != l.applied && desired.level != "" && !desired.connected.IsZero() {
			l.apply(ctx, desired)
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

// desired returns the setting that should be applied. Its level is empty if the ProxyServer does not exist, and its
// time is zero if the Envoy is not connected.
func (l *LogLevels) desired() levelSetting {
	var desired levelSetting
	if p := proxyOf(l.Store, l.Proxy); p != nil {
		desired.level = p.LogLevel
	}
	served, _ := l.ADS.ProxyState(l.Proxy)
	for _, e := range served.Envoys {
		if e.ID == l.Pod {
			desired.connected = e.Connected
		}
	}
	return desired
}

func (l *LogLevels) apply(ctx context.Context, desired levelSetting) {
	log := l.Log.With("proxy", l.Proxy, "node", l.Pod, "level", string(desired.level))
	changed, err := l.Admin.SetLogLevel(ctx, desired.level)
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
	l.applied, l.failure = desired, ""
}
