// Package apiserver retries requests while the API server restarts, and runs commands in containers.
package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/transport"
)

// Retry returns a wrapper for rest.Config.Wrap that retries requests while the API server does not respond or is overloaded, until
// their context is done. Before the API server's first response, requests fail immediately. It calls waiting before the first retry of
// each outage. Requests whose response was lost are sent again, so that a creation may return AlreadyExists, and a deletion NotFound,
// although the first attempt succeeded.
func Retry(waiting func(error)) transport.WrapperFunc {
	return func(next http.RoundTripper) http.RoundTripper { return &retrier{next: next, waiting: waiting} }
}

type retrier struct {
	next             http.RoundTripper
	waiting          func(error)
	answered, outage atomic.Bool
}

// retryInterval is the time between two attempts of a request.
const retryInterval = 500 * time.Millisecond

// RoundTrip implements http.RoundTripper. It calls waiting at most once for a request, even if other requests succeed
// meanwhile, as when only an admission webhook is unavailable.
func (r *retrier) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx := request.Context()
	for reported := false; ; reported = true {
		response, err := r.next.RoundTrip(request)
		why := outage(response, err)
		switch {
		case ctx.Err() != nil:
			return response, err
		case why == nil:
			r.answered.Store(true)
			r.outage.Store(false)
			return response, err
		case !r.answered.Load() || request.Body != nil && request.GetBody == nil:
			return response, err
		case !r.outage.Swap(true) && !reported:
			r.waiting(fmt.Errorf("the API server at %s does not respond: %w", request.URL.Host, why))
		}
		select {
		case <-ctx.Done():
			return response, err
		case <-time.After(retryInterval):
		}
		if response != nil {
			_ = response.Body.Close()
		}
		if request.GetBody != nil {
			request = request.Clone(ctx)
			if request.Body, err = request.GetBody(); err != nil {
				return nil, fmt.Errorf("reading the body of the request again: %w", err)
			}
		}
	}
}

// outageTexts are parts of responses from an API server that is starting, or cannot reach etcd or a webhook, by status code. All parts
// of a text must occur. A starting API server rejects requests before it has read the RBAC objects.
var outageTexts = map[int][][]string{
	http.StatusForbidden:           {{"not yet ready to handle request"}, {"RBAC: clusterrole", "not found"}},
	http.StatusInternalServerError: {{"etcd"}, {"failed calling webhook", "connect"}, {"ServerTimeout"}},
	http.StatusTooManyRequests:     {{}},
	http.StatusServiceUnavailable:  {{}},
	http.StatusGatewayTimeout:      {{}},
}

// outage returns why the API server is down, starting or overloaded; nil if it handled the request.
func outage(response *http.Response, err error) error {
	if err != nil {
		var network net.Error
		if utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) ||
			errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) ||
			errors.As(err, &network) && network.Timeout() {
			return err
		}
		return nil
	}
	texts := outageTexts[response.StatusCode]
	if texts == nil {
		return nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the response: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	for _, parts := range texts {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(string(body), part) }) {
			return errors.New(response.Status)
		}
	}
	return nil
}
