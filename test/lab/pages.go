package lab

import (
	"net/http"
	"testing"
)

// Pages is the address, with a port, at which a daemon serves its health, metrics and state.
type Pages string

// Get requests a path. It returns 0 and nil if the daemon does not respond.
func (p Pages) Get(tb testing.TB, path string) (status int, body []byte) {
	tb.Helper()
	return Get(tb, "http://"+string(p)+path)
}

// AwaitReady waits until the daemon is ready.
func (p Pages) AwaitReady(tb testing.TB) {
	tb.Helper()
	Await(tb, "the daemon to be ready", func() string { return CheckStatus(tb, "http://"+string(p)+"/readyz", http.StatusOK) })
}

// Metric returns a metric, as the function Metric. It waits for a response, because a daemon that handles many changes responds late.
func (p Pages) Metric(tb testing.TB, metric string) float64 {
	tb.Helper()
	var page []byte
	Poll(tb, "the metrics of the daemon", func() bool {
		_, page = p.Get(tb, "/metrics")
		return len(page) > 0
	})
	return Metric(tb, page, metric)
}
