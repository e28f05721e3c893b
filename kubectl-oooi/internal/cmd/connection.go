package cmd

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/apiserver"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
)

// A connection has the client of a cluster and its configuration.
type connection struct {
	config *rest.Config
	client client.Client
}

// connect returns a client for the cluster that the flags select. It prints each warning of the API server once.
func (c *command) connect(wrappers ...transport.WrapperFunc) (*connection, error) {
	config, err := c.cluster.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS = -1 // unlimited: the API server has limits
	config.WarningHandler = rest.NewWarningWriter(c.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	config.UserAgent = "kubectl-oooi/" + release.Version()
	config.Wrap(transport.Wrappers(wrappers...))
	cl, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return &connection{config, cl}, nil
}

// retryingClient returns a client that waits while the API server restarts, and prints that it waits.
func (c *command) retryingClient() (client.Client, error) {
	to, err := c.connect(apiserver.Retry(func(err error) { fmt.Fprintln(c.ErrOut, "waiting:", err) }))
	if err != nil {
		return nil, err
	}
	return to.client, nil
}

// client returns a client that fails immediately if the API server does not respond.
func (c *command) client() (client.Client, error) {
	to, err := c.connect()
	if err != nil {
		return nil, err
	}
	return to.client, nil
}

// ping returns an error if the API server does not respond before ctx is done.
func (to *connection) ping(ctx context.Context) error {
	cl, err := discovery.NewDiscoveryClientForConfig(to.config)
	if err == nil {
		err = cl.RESTClient().Get().AbsPath("/version").Do(ctx).Error()
	}
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// reader returns a reader for the cluster, which prints a warning if objects may be missing.
func (c *command) reader() (*read.Reader, error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	return &read.Reader{Client: cl, Warn: c.warning}, nil
}
