package serve

import (
	"context"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// settings are the log level and the access log of an Envoy with a certain connection. After a restart of Envoy its connection
// differs, so that they are set again. In between, settings that a user makes at the admin interface stay.
type settings struct {
	connected time.Time // zero if the Envoy is not connected
	level     v1alpha1.LogLevel
	accessLog bool
}

// applySettings applies the ProxyServer's log level and access log to Envoy, if they or the connection have changed.
// It logs an error, unless the previous call returned the same error.
func (r *Reporter) applySettings(ctx context.Context) {
	p := proxyOf(r.Store, r.Proxy)
	if p == nil || r.Admin == nil {
		return
	}
	_, connection := r.ADS.Envoy(r.Proxy, r.Pod)
	desired := settings{connection.Connected, p.LogLevel, p.AccessLog}
	if desired == r.settings || desired.connected.IsZero() {
		return
	}
	log := r.Log.With("proxy", r.Proxy, "node", r.Pod)
	var err error
	if desired.level != "" {
		err = r.Admin.SetLogLevel(ctx, desired.level)
	}
	if err == nil {
		err = r.Admin.SetAccessLog(ctx, desired.accessLog)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if err.Error() != r.settingsFailure {
			log.Error("setting Envoy's log level and access log failed", "err", err)
		}
		r.settingsFailure = err.Error()
		return
	}
	if desired.level != r.settings.level {
		log.Info("Envoy's log level set", "level", string(desired.level))
	}
	if desired.accessLog != r.settings.accessLog {
		log.Info("Envoy's access log set", "enabled", desired.accessLog)
	}
	r.settings, r.settingsFailure = desired, ""
}
