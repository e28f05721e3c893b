package vip

import (
	"context"
	"net/http"
	"time"
)

const (
	// readyTimeout limits one request.
	readyTimeout = time.Second
	// readyThreshold is the number of equal results in a row after which a change counts.
	readyThreshold = 2
)

// checkReady requests the URLs every interval until ctx is done, and reports each change to the proxy's readiness.
// The proxy counts as not ready before the first report.
func checkReady(ctx context.Context, urls []string, interval time.Duration, report func(bool)) {
	client := &http.Client{Timeout: readyTimeout}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	ready, differing := false, 0 // last report, and number of results since that differ from it
	for {
		differing++
		if allReady(ctx, client, urls) == ready {
			differing = 0
		}
		if differing == readyThreshold {
			ready, differing = !ready, 0
			report(ready)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// allReady reports whether all URLs return 200.
func allReady(ctx context.Context, client *http.Client, urls []string) bool {
	for _, url := range urls {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return false
		}
	}
	return true
}
