package guest

import (
	"fmt"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/kubeconfig"
)

// requestTimeout bounds one request to a hosted cluster.
const requestTimeout = 10 * time.Second

// Cluster is a client of a hosted cluster, with the credentials of an admin kubeconfig. It is safe for concurrent use.
type Cluster struct {
	client client.Client
	config *rest.Config
	http   *http.Client
}

// Connect returns a client for a kubeconfig. Because other clients can write the kubeconfig, only the fields that
// kubeconfig.Restricted permits are used. If dial, "host:port", is not empty, the client connects to it instead of to
// the URL's host, which stays the TLS server name. Connect sends no request. It returns an error if the kubeconfig
// cannot be used. The caller must close the client.
func Connect(data []byte, dial string) (*Cluster, error) {
	config, err := kubeconfig.Restricted(data)
	if err != nil {
		return nil, err
	}
	config.Timeout, config.UserAgent = requestTimeout, "oooi"
	config.QPS, config.Burst = 20, 40 // one reconciliation takes about a dozen requests
	kubeconfig.SetDial(config, dial)
	c := &Cluster{config: config}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	if c.client, err = client.New(config, client.Options{HTTPClient: c.http, Scheme: scheme.Scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return c, nil
}

// Close closes the idle connections.
func (c *Cluster) Close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) } // http.Client does not support client-go's transports
