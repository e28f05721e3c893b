package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// WaitTimeout bounds each wait for something that takes seconds on an idle machine. Only a failing test waits
// that long.
const WaitTimeout = 3 * time.Minute

// Await calls check every 20 ms until it returns "", and fails the test with its last result after
// WaitTimeout.
func Await(tb testing.TB, what string, check func() string) {
	tb.Helper()
	for end := time.Now().Add(WaitTimeout); ; time.Sleep(20 * time.Millisecond) {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("waiting for %s: %s", what, problem)
		}
	}
}

// Poll is Await for a condition without a description.
func Poll(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	Await(tb, what, func() string {
		if condition() {
			return ""
		}
		return "condition not met"
	})
}

// Get requests url, and returns the status code and the body, or 0 and nil if there is no complete response
// within 5 seconds.
func Get(tb testing.TB, url string) (status int, body []byte) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	Must(tb, err)
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

// CheckStatus requests url like Get, and returns "" if the response has a status code, and otherwise its status code and body.
func CheckStatus(tb testing.TB, url string, want int) string {
	tb.Helper()
	if status, body := Get(tb, url); status != want {
		return fmt.Sprintf("%d %s", status, body)
	}
	return ""
}
