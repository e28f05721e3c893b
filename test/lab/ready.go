package lab

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// errPortTaken is the end of a process that found its port in use.
var errPortTaken = errors.New("a port that was free has been taken")

// waitForPath waits until the API server answers a request for path with 200.
func (cp *ControlPlane) waitForPath(ctx context.Context, what, path string) error {
	client, err := cp.probeClient()
	if err != nil {
		return err
	}
	return cp.await(ctx, what, func(ctx context.Context) error {
		return probe(ctx, client, cp.ServerURL()+path)
	})
}

// await tries until it succeeds. It gives up when a process that should run has
// ended, or when the time is over.
func (cp *ControlPlane) await(ctx context.Context, what string, try func(context.Context) error) error {
	return await(ctx, what, cp.dead, cp.Logs, try)
}

// await is the method, for the owner of other processes: dead describes the first that has
// ended, and logs what they have logged.
func await(ctx context.Context, what string, dead func() error, logs func() string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var last error // that says more than that the time is over
	for {
		err := try(ctx)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		// Also on success: the answer may come from whoever has our port.
		if dead := dead(); dead != nil {
			return fmt.Errorf("waiting for %s: %w", what, dead)
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

// dead describes the first process that has ended by itself.
func (cp *ControlPlane) dead() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	err := firstDead(cp.processes())
	if err != nil && strings.Contains(err.Error(), "address already in use") {
		err = fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// firstDead describes the first process that has ended.
func firstDead(processes []*process) error {
	for _, p := range processes {
		if p != nil && !p.running() {
			return p.failure()
		}
	}
	return nil
}

// probeClient is an administrator's client that keeps no connections.
func (cp *ControlPlane) probeClient() (*http.Client, error) {
	pair, err := tls.X509KeyPair(cp.admin.cert, cp.admin.key)
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cp.ca.x509)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		DisableKeepAlives: true,
	}}, nil
}

func probe(ctx context.Context, client *http.Client, url string) error {
	// Short, as a starting API server listens before it answers.
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
