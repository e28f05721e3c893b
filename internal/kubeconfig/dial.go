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

// dialTimeout is for how long a connection to an API server may take.
const dialTimeout = 10 * time.Second

// SetDial bounds how long a client takes to connect: to the URL's host, or to an address,
// "host:port", in its place. Then the host stays the TLS server name, and no proxy is
// used, whatever the environment says.
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
			err = unreachable{err}
		}
		return conn, err
	}
}

// unreachable is a timeout that does not say so: of those client-go tells nobody before it
// has tried a watch ten times more.
type unreachable struct{ error }
