package lab

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"
)

// Await calls amiss again and again until it returns nothing, and fails the test with what it said
// last when that takes longer than patience.
func Await(tb testing.TB, patience time.Duration, what string, amiss func() string) {
	tb.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		why := amiss()
		if why == "" {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("waiting for %s: %s", what, why)
		}
	}
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
