package apiserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{Config: lab.Config{Name: "restarting"}}

func TestMain(m *testing.M) { lab.Main(m, &management) }

func newClient(t *testing.T, cp *lab.ControlPlane) *Client {
	t.Helper()
	c, err := client.New(cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &Client{Client: c}
}

func get(ctx context.Context, c client.Client) error {
	return c.Get(ctx, client.ObjectKey{Name: "default"}, &corev1.Namespace{})
}

// TestRequestsAreRetried kills the API server and starts it again.
func TestRequestsAreRetried(t *testing.T) {
	cp := management.Get(t)
	c := newClient(t, cp)
	var messages []string
	c.Waiting = func(err error) { messages = append(messages, err.Error()) }
	if err := get(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := cp.KillAPIServer(); err != nil {
		t.Fatal(err)
	}

	// A client that has never been answered, or with Once, does not wait.
	once := newClient(t, cp)
	once.Once = true
	for what, other := range map[string]*Client{"new": newClient(t, cp), "with Once": once} {
		err := get(t.Context(), other)
		if err == nil || !strings.HasPrefix(err.Error(), "the API server at 127.0.0.1:") || !strings.HasSuffix(err.Error(), " does not answer: connection refused") {
			t.Errorf("error of a client that is %s: %v", what, err)
		}
	}

	// A request ends with its context.
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := get(soon, c); err == nil || strings.Contains(err.Error(), "https://") || soon.Err() == nil {
		t.Errorf("the request ended with %v, its context with %v", err, soon.Err())
	}

	answer := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	go func() { answer <- get(ctx, c) }()
	time.Sleep(time.Second)
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if len(messages) != 1 || !strings.HasSuffix(messages[0], "does not answer: connection refused") {
		t.Errorf("Waiting was called with %q, want one error", messages)
	}
}

func TestRateLimiterErrorsBecomeContextErrors(t *testing.T) {
	limited := errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	if err := Error(t.Context(), limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Error(ctx, limited); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
