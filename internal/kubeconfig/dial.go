package kubeconfig

import (
	"context"
	"net"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// DialInstead makes a client connect to an address, "host:port", in place of the URL's
// host, which stays the TLS server name, and by no proxy, whatever the environment says.
// An empty address changes nothing.
func DialInstead(config *rest.Config, address string) {
	if address == "" {
		return
	}
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}
