package kubeconfig

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
)

// dialTimeout is the timeout for connecting to an API server.
const dialTimeout = 10 * time.Second

// SetDial sets a connect timeout of 10 s in a client configuration. If address, "host:port", is not empty, clients
// connect to it instead of to the URL's host, and ignore a proxy in the environment; the URL's host stays the TLS
// server name.
func SetDial(config *rest.Config, address string) {
	if address != "" {
		config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	config.Dial = func(ctx context.Context, network, host string) (net.Conn, error) {
		if address != "" {
			host = address
		}
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, host)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			err = connectError{err}
		}
		return conn, err
	}
}

// connectError hides that an error is a timeout, because client-go retries a watch ten times before it
// reports a timeout.
type connectError struct{ error }
