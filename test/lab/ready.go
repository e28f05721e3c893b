package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// errPortTaken reports that a process has exited because its port was in use.
var errPortTaken = errors.New("a reserved port is in use")

// waitForPath waits until the API server responds to a request for path with 200.
func (cp *ControlPlane) waitForPath(ctx context.Context, what, path string) error {
	client, err := rest.HTTPClientFor(cp.RESTConfig())
	if err != nil {
		return err
	}
	return cp.await(ctx, what, func(ctx context.Context) error {
		return probe(ctx, client, cp.ServerURL()+path)
	})
}

// await calls try until it succeeds. It fails when one of the control plane's processes exits, or after
// startTimeout.
func (cp *ControlPlane) await(ctx context.Context, what string, try func(context.Context) error) error {
	return await(ctx, what, cp.failure, cp.Logs, try)
}

// await is ControlPlane.await for other owners of processes. failure returns an error if a process has
// exited, and logs returns the ends of the processes' logs.
func await(ctx context.Context, what string, failure func() error, logs func() string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error // the last error, unless it is only the context's
	for {
		err := try(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		// Also on success, because the response may come from another process that uses the port.
		if err := failure(); err != nil {
			return fmt.Errorf("waiting for %s: %w", what, err)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last: %w\n%s", what, ctx.Err(), last, logs())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// failure returns an error that describes the first process that has exited unexpectedly, or nil.
func (cp *ControlPlane) failure() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	err := firstFailure(cp.processes())
	if err != nil && strings.Contains(err.Error(), "address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// firstFailure returns an error that describes the first process that has ended, or nil.
func firstFailure(processes []*process) error {
	for _, p := range processes {
		if p != nil && !p.running() {
			return p.failure()
		}
	}
	return nil
}

func probe(ctx context.Context, client *http.Client, url string) error {
	// Short, because a starting API server accepts connections before it responds.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return err
	}
	return fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
}
