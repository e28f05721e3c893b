package kubeconfig

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"k8s.io/client-go/rest"
)

// dialTimeout is the timeout for connecting to an API server.
const dialTimeout = 10 * time.Second

// pings are the environment variables, read by client-go when it creates a client, for after how many seconds without a frame
// it sends an HTTP/2 ping, and how long it waits for the answer. Its defaults are 30 and 15.
var pings = map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5"}

// SetDial sets a connect timeout of 10 s in a client configuration. If address, "host:port", is not empty, clients
// connect to it instead of to the URL's host, and ignore a proxy in the environment; the URL's host stays the TLS
// server name. Clients that are created after the first call close a connection on which nothing arrives for 15 s, unless the
// environment has other times for pings.
func SetDial(config *rest.Config, address string) {
	for name, seconds := range pings {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds) // fails only for invalid names
		}
	}
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
