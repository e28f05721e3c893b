//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// errWrongAnswer marks a wrong answer, which is worse than none.
var errWrongAnswer = errors.New("wrong")

// reportWrongAnswers fails the test for each wrong answer to probes.
func reportWrongAnswers(t *testing.T, probes []*lab.Probe) {
	t.Helper()
	for _, p := range probes {
		for _, q := range p.Since(time.Time{}) {
			if errors.Is(q.Err, errWrongAnswer) {
				t.Errorf("%s at %s: %v", p.Name, q.At.Format(time.TimeOnly), q.Err)
			}
		}
	}
}

// An expectation has the addresses that DNS may return for the proxy, and the last one that it returned.
type expectation struct {
	mu      sync.Mutex
	allowed []string
	last    string
}

func (e *expectation) set(addresses ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.allowed = addresses
	if e.last == "" {
		e.last = addresses[0]
	}
}

func (e *expectation) record(address string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = address
	return slices.Contains(e.allowed, address)
}

func (e *expectation) address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// resolveAt returns a request that resolves the API server's name at a DNS server.
func (v *vm) resolveAt(server string, proxy *expectation) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := v.dial(ctx, "udp", net.JoinHostPort(server, "53"))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		client := &dns.Client{}
		reply, _, err := client.ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(apiHost+".", dns.TypeA), &dns.Conn{Conn: conn})
		switch {
		case err != nil:
			return err
		case reply.Rcode == dns.RcodeServerFailure: // not ready yet
			return errors.New("SERVFAIL")
		case len(reply.Answer) == 1:
			if a, ok := reply.Answer[0].(*dns.A); ok && proxy.record(a.A.String()) {
				return nil
			}
		}
		return fmt.Errorf("%w: %s", errWrongAnswer, reply)
	}
}

// resolved resolves the API server's name once, like a VM that does not resolve it again.
func (v *vm) resolved(t *testing.T) *expectation {
	t.Helper()
	address := strings.TrimSpace(v.Run(t, "dig", "@"+v.dns, "+short", "+time=5", apiHost))
	e := &expectation{}
	e.set(address)
	return e
}

// either queries the second server a moment after the first, as a resolver with two servers does, and returns
// the first successful answer.
func either(first, second func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answers := make(chan error, 2)
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { answers <- first(ctx) })
		select {
		case err := <-answers:
			if err == nil {
				return nil
			}
			answers <- err
		case <-time.After(lab.ProbeTimeout / 2):
		}
		asking.Go(func() { answers <- second(ctx) })
		err := <-answers
		if err != nil {
			err = <-answers
		}
		return err
	}
}

// connect returns a request that connects to the API server at the last address that DNS returned.
func (v *vm) connect(ca *lab.CA, proxy *expectation) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := v.dialTLS(ctx, ca, proxy)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func (v *vm) dialTLS(ctx context.Context, ca *lab.CA, proxy *expectation) (conn *tls.Conn, err error) {
	var name string
	err = v.Do(func() (err error) {
		conn, name, err = ca.DialTLS(ctx, net.JoinHostPort(proxy.address(), "6443"), apiHost)
		return err
	})
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return nil, fmt.Errorf("%w: %w", errWrongAnswer, err)
	case err != nil:
		return nil, err
	case name != apiHost:
		return nil, errors.Join(fmt.Errorf("%w: connected to %s", errWrongAnswer, name), conn.Close())
	}
	return conn, nil
}

func (v *vm) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = v.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// stream opens a connection to the API server through the proxy, at the last address that DNS returned.
func (v *vm) stream(ctx context.Context, ca *lab.CA, proxy *expectation) (*lab.Stream, error) {
	dial, cancel := context.WithTimeout(ctx, lab.ProbeTimeout)
	defer cancel()
	conn, err := v.dialTLS(dial, ca, proxy)
	if err != nil {
		return nil, err
	}
	return lab.NewStream(conn, lab.ProbeInterval), nil
}
