package vip

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

func TestHangingProxyIsNotReady(t *testing.T) {
	var hangs atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if hangs.Load() {
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel() // which ends the request, for which Close waits
	reports := make(chan bool)
	go checkReady(ctx, []string{server.URL}, time.Millisecond, func(ready bool) { reports <- ready })
	for _, want := range []bool{true, false} {
		select {
		case ready := <-reports:
			if ready != want {
				t.Errorf("ready is %t", ready)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("ready does not become %t", want)
		}
		hangs.Store(true)
	}
}

func TestReadinessChangesAfterEqualResults(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n := requests.Add(1); n < 20 && n%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	checkReady(ctx, []string{server.URL}, time.Millisecond, func(bool) { cancel() })
	if n := requests.Load(); n < 20 {
		t.Errorf("ready is reported after %d alternating results", n)
	}
}
