package vip

import (
	"context"
	"net/http"
	"time"
)

const (
	// readyTimeout bounds one question.
	readyTimeout = time.Second
	// readyTimes is how often in a row it has to be answered in a new way.
	readyTimes = 2
)

// checkReady asks URLs whether the proxy is ready, and reports when that changes, until the
// context ends. Before the first report it is not.
func checkReady(ctx context.Context, urls []string, every time.Duration, report func(bool)) {
	client := &http.Client{Timeout: readyTimeout}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(every)
	defer tick.Stop()
	was, times := false, 0
	for {
		times++
		if askReady(ctx, client, urls) == was {
			times = 0
		}
		if times == readyTimes {
			was, times = !was, 0
			report(was)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func askReady(ctx context.Context, client *http.Client, urls []string) bool {
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
