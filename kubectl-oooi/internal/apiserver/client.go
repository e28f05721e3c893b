// Package apiserver provides a Kubernetes client that retries requests while the API server restarts, and that shortens
// the errors of requests.
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

// A Client retries requests while the API server does not answer or is overloaded, until their context ends. Before the
// API server has answered for the first time, such a request fails immediately. A Client is safe for concurrent use.
type Client struct {
	client.Client

	// Waiting is called with the error before the first retry, once for each outage. It may be nil.
	Waiting func(error)
	// Once disables retries: each request is sent once.
	Once bool

	answered atomic.Bool
	outage   atomic.Bool
}

// retryInterval is the time between two attempts of a request.
const retryInterval = 500 * time.Millisecond

// do retries a request until it is answered. It calls Waiting at most once for a request, even if other requests are
// answered in between, as when only an admission webhook is unavailable.
func (c *Client) do(ctx context.Context, request func() error) error {
	for reported := false; ; {
		err := request()
		if err != nil && (ctx.Err() != nil || rateLimited(err) || errors.Is(err, context.DeadlineExceeded)) {
			return Error(ctx, err) // the context ended, or the rate limiter refused the request
		}
		down := transient(err)
		if !down {
			c.answered.Store(true)
			c.outage.Store(false)
		}
		if !down || c.Once || !c.answered.Load() {
			return Error(ctx, err)
		}
		if !c.outage.Swap(true) && !reported && c.Waiting != nil {
			c.Waiting(Error(ctx, err))
		}
		reported = true
		select {
		case <-ctx.Done():
			return Error(ctx, err)
		case <-time.After(retryInterval):
		}
	}
}

// transient reports whether an error means that the API server is down, starting or overloaded.
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
		// An API server that is starting refuses requests before it has read the RBAC objects.
		return strings.Contains(err.Error(), "not yet ready to handle request") || strings.Contains(err.Error(), "RBAC: clusterrole") && strings.Contains(err.Error(), "not found")
	}
	return false
}

// rateLimited reports whether the client's rate limiter refused a request, because it would be sent after the
// context's deadline.
func rateLimited(err error) bool {
	return strings.Contains(err.Error(), "client rate limiter Wait returned an error")
}

// Error shortens the error of a request. If ctx ended the request, or the client's rate limiter refused it because of
// the deadline of ctx, Error returns the error of ctx. In other errors of the connection it replaces the URL of the
// request by the host of the API server. It returns all other errors, and nil, unchanged.
func Error(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if rateLimited(err) {
		if ctx.Err() == nil {
			return context.DeadlineExceeded // the limiter refuses before the deadline
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
	return &connectionError{host: host, err: request.Err}
}

// A connectionError is an error of the connection to an API server.
type connectionError struct {
	host string
	err  error
}

func (u *connectionError) Error() string {
	var operation *net.OpError
	var network net.Error
	switch {
	case errors.As(u.err, &operation) && operation.Op == "proxyconnect": // by net/http
		return fmt.Sprintf("the proxy to %s (HTTPS_PROXY, or proxy-url of the kubeconfig) does not answer: %v", u.host, operation.Err)
	case operation != nil && operation.Err != nil:
		if number, ok := errors.AsType[syscall.Errno](operation.Err); ok {
			return fmt.Sprintf("%s does not answer: %s", u.host, number.Error())
		}
		return fmt.Sprintf("%s does not answer: %v", u.host, operation.Err)
	case utilnet.IsProbableEOF(u.err), errors.As(u.err, &network) && network.Timeout():
		return fmt.Sprintf("%s does not answer: %v", u.host, u.err)
	default: // such as a missing credential plugin, an untrusted certificate, or a proxy that refuses
		return fmt.Sprintf("connecting to %s: %v", u.host, u.err)
	}
}

func (u *connectionError) Unwrap() error { return u.err }

// Get implements client.Reader.
func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return c.do(ctx, func() error { return c.Client.Get(ctx, key, o, options...) })
}

// List implements client.Reader.
func (c *Client) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.do(ctx, func() error { return c.Client.List(ctx, list, options...) })
}

// Apply implements client.Writer.
func (c *Client) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	return c.do(ctx, func() error { return c.Client.Apply(ctx, o, options...) })
}

// Create implements client.Writer. It may return AlreadyExists for an object that it created, if the response was lost.
func (c *Client) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return c.do(ctx, func() error { return c.Client.Create(ctx, o, options...) })
}

// Delete implements client.Writer. It may return NotFound for an object that it deleted, if the response was lost.
func (c *Client) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	return c.do(ctx, func() error { return c.Client.Delete(ctx, o, options...) })
}

// Update implements client.Writer. It may return Conflict for an object that it updated, if the response was lost.
func (c *Client) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	return c.do(ctx, func() error { return c.Client.Update(ctx, o, options...) })
}

// Patch implements client.Writer. If the response was lost, it sends a patch again that was already applied.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, options ...client.PatchOption) error {
	return c.do(ctx, func() error { return c.Client.Patch(ctx, o, patch, options...) })
}
