package lab

import (
	"fmt"
	"net/http"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clients are the clients of a control plane that Apply and InstallCRDs use.
type clients struct {
	client.Client

	http *http.Client
}

func newClients(config *rest.Config) (c clients, err error) {
	config.WarningHandler = rest.NoWarnings{} // warnings are about CRDs of other projects
	if c.http, err = rest.HTTPClientFor(config); err == nil {
		c.Client, err = client.New(config, client.Options{HTTPClient: c.http})
	}
	if err != nil {
		return clients{}, fmt.Errorf("creating a client: %w", err)
	}
	return c, nil
}

// close closes idle connections. It is safe on the zero value.
func (c clients) close() {
	if c.http != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport)
	}
}
