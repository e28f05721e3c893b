package guest

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/kubeconfig"
)

// requestTimeout bounds one request to a hosted cluster.
const requestTimeout = 10 * time.Second

// Cluster is a hosted cluster, as an administrator's kubeconfig reaches it.
type Cluster struct {
	client client.Client
	config *rest.Config
	http   *http.Client
}

// Connector makes clients of hosted clusters, which share what is the same for all. It is
// safe for concurrent use.
type Connector struct{ scheme *runtime.Scheme }

// NewConnector makes a Connector.
func NewConnector() (*Connector, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering types: %w", err)
	}
	return &Connector{scheme}, nil
}

// Connect makes a client of a kubeconfig that somebody else wrote, of which the allowed
// parts alone are used. It connects to an address in place of the URL's host, which
// stays the TLS server name; with an empty one, to the host. Nothing is sent yet. The
// caller closes it.
func (o *Connector) Connect(data []byte, dial string) (*Cluster, error) {
	config, err := kubeconfig.Restricted(data)
	if err != nil {
		return nil, err
	}
	config.Timeout, config.UserAgent = requestTimeout, "oooi"
	config.QPS, config.Burst = 20, 40 // one look is a dozen requests
	kubeconfig.SetDial(config, dial)
	c := &Cluster{config: config}
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	if c.client, err = client.New(config, client.Options{HTTPClient: c.http, Scheme: o.scheme}); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// Close closes the connections.
func (c *Cluster) Close() { c.http.CloseIdleConnections() }
