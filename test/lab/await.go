package lab

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// Patience is for how long tests wait for what ought to happen within some seconds on an idle
// machine. Only those wait that long that fail.
const Patience = 3 * time.Minute

// Await calls amiss again and again until it returns nothing, and fails the test with what it said
// last when that takes longer than Patience.
func Await(tb testing.TB, what string, amiss func() string) {
	tb.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(20 * time.Millisecond) {
		why := amiss()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("waiting for %s: %s", what, why)
		}
	}
}

// Poll is Await for what is so or is not.
func Poll(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	Await(tb, what, func() string {
		if is() {
			return ""
		}
		return "it has not come"
	})
}

// Get asks for a page; 0 and nil where nobody answers within seconds.
func Get(tb testing.TB, url string) (status int, body []byte) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		tb.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = response.Body.Close() }()
	if body, err = io.ReadAll(response.Body); err != nil {
		return 0, nil
	}
	return response.StatusCode, body
}
