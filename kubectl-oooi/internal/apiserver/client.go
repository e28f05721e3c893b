// Package apiserver talks to an API server that may restart meanwhile, and words its errors for
// people.
package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client is a client whose requests are repeated until their context ends while the API server does
// not answer, once it has answered before: one that cannot be reached at all is an error at once.
type Client struct {
	client.Client

	// Waiting is called once an outage with what is wrong; nil to say nothing.
	Waiting func(error)
	// Once makes each request once: errors are only worded.
	Once bool

	answered atomic.Bool
	away     atomic.Bool
}

// pause is how long to wait between two attempts.
const pause = 500 * time.Millisecond

// do makes a request until it is answered. Waiting is called once a request: others may be answered
// meanwhile, where only an admission webhook is unavailable.
func (c *Client) do(ctx context.Context, request func() error) error {
	for reported := false; ; {
		err := request()
		if err != nil && (ctx.Err() != nil || limited(err) || errors.Is(err, context.DeadlineExceeded)) {
			return Error(ctx, err) // the API server was not asked, or had no time to answer
		}
		gone := transient(err)
		if !gone {
			c.answered.Store(true)
			c.away.Store(false)
		}
		if !gone || c.Once || !c.answered.Load() {
			return Error(ctx, err)
		}
		if !c.away.Swap(true) && !reported && c.Waiting != nil {
			c.Waiting(Error(ctx, err))
		}
		reported = true
		select {
		case <-ctx.Done():
			return Error(ctx, err)
		case <-time.After(pause):
		}
	}
}

// transient reports whether an error is that of an API server that is down, starts or has no time.
func transient(err error) bool {
	var network net.Error
	switch {
	case err == nil:
		return false
	case utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err), utilnet.IsHTTP2ConnectionLost(err),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		errors.As(err, &network) && network.Timeout() && !errors.Is(err, context.DeadlineExceeded):
		return true
	case apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err):
		return true
	case apierrors.IsInternalError(err):
		return strings.Contains(err.Error(), "etcd") || strings.Contains(err.Error(), "failed calling webhook") && strings.Contains(err.Error(), "connect")
	case apierrors.IsForbidden(err):
		// An API server that starts knows nobody's rights before it has read them.
		return strings.Contains(err.Error(), "not yet ready to handle request") || strings.Contains(err.Error(), "RBAC: clusterrole") && strings.Contains(err.Error(), "not found")
	}
	return false
}

// limited reports whether the client's rate limiter refused a request: its turn is after the context's deadline.
func limited(err error) bool {
	return strings.Contains(err.Error(), "client rate limiter Wait returned an error")
}

// Error words what a client says: without the request's address, which tells nobody anything, and
// without its rate limiter.
func Error(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if limited(err) {
		if ctx.Err() == nil {
			return context.DeadlineExceeded // it would end before the request has its turn
		}
		return ctx.Err()
	}
	var request *url.Error
	if !errors.As(err, &request) {
		return err
	}
	if ctx.Err() != nil && (errors.Is(request.Err, context.Canceled) || errors.Is(request.Err, context.DeadlineExceeded)) {
		return ctx.Err()
	}
	host := "the API server"
	if address, err := url.Parse(request.URL); err == nil && address.Host != "" {
		host += " at " + address.Host
	}
	return &unanswered{host: host, err: request.Err}
}

// unanswered is an error of the connection to an API server.
type unanswered struct {
	host string
	err  error
}

func (u *unanswered) Error() string {
	var operation *net.OpError
	if errors.As(u.err, &operation) && operation.Err != nil {
		if number, ok := errors.AsType[syscall.Errno](operation.Err); ok {
			return fmt.Sprintf("%s does not answer: %s", u.host, number.Error())
		}
		return fmt.Sprintf("%s does not answer: %v", u.host, operation.Err)
	}
	return fmt.Sprintf("%s does not answer: %v", u.host, u.err)
}

func (u *unanswered) Unwrap() error { return u.err }

// Get is client.Reader's.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return c.do(ctx, func() error { return c.Client.Get(ctx, key, o, options...) })
}

// List is client.Reader's.
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.do(ctx, func() error { return c.Client.List(ctx, list, options...) })
}

// Apply is client.Writer's.
func (c *Client) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return c.do(ctx, func() error { return c.Client.Apply(ctx, o, options...) })
}

// Create is client.Writer's. An object that was created by a request whose answer was lost exists
// already.
func (c *Client) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return c.do(ctx, func() error { return c.Client.Create(ctx, o, options...) })
}

// Delete is client.Writer's. An object whose deletion was not answered may be gone.
func (c *Client) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return c.do(ctx, func() error { return c.Client.Delete(ctx, o, options...) })
}

// Update is client.Writer's.
func (c *Client) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return c.do(ctx, func() error { return c.Client.Update(ctx, o, options...) })
}

// Patch is client.Writer's.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.do(ctx, func() error { return c.Client.Patch(ctx, o, patch, options...) })
}
