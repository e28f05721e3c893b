package lab

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// clients are the clients of a control plane that Apply and InstallCRDs use.
type clients struct {
	http      *http.Client
	dynamic   dynamic.Interface
	discovery discovery.CachedDiscoveryInterface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

func newClients(config *rest.Config) (clients, error) {
	config.WarningHandler = rest.NoWarnings{} // warnings are about CRDs of other projects
	c := clients{}
	var err error
	if c.http, err = rest.HTTPClientFor(config); err != nil {
		return clients{}, fmt.Errorf("creating a client: %w", err)
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return clients{}, fmt.Errorf("creating a dynamic client: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(config, c.http)
	if err != nil {
		return clients{}, fmt.Errorf("creating a discovery client: %w", err)
	}
	c.discovery = memory.NewMemCacheClient(disco)
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(c.discovery)
	return c, nil
}

// close closes idle connections. It is safe on the zero value.
func (c clients) close() {
	if c.http != nil {
		utilnet.CloseIdleConnectionsFor(c.http.Transport)
	}
}

// mapping returns the resource of a kind. It retries for 10 seconds if discovery does not list the kind,
// because its CRD may have just been created.
func (c clients) mapping(ctx context.Context, kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err == nil {
			return mapping, nil
		}
		if !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("finding the resource of %s: %w", kind, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("finding the resource of %s (is its CRD installed?): %w", kind, err)
		case <-time.After(100 * time.Millisecond):
			c.mapper.Reset()
		}
	}
}

// hasStatus reports whether a resource has the status subresource.
func (c clients) hasStatus(resource schema.GroupVersionResource) (bool, error) {
	list, err := c.discovery.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return false, fmt.Errorf("finding the subresources of %s: %w", resource.Resource, err)
	}
	for _, r := range list.APIResources {
		if r.Name == resource.Resource+"/status" {
			return true, nil
		}
	}
	return false, nil
}

// serves returns an error unless discovery, queried without the cache, lists a resource.
func (c clients) serves(resource schema.GroupVersionResource) error {
	c.discovery.Invalidate()
	list, err := c.discovery.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if err != nil {
		return err
	}
	for _, r := range list.APIResources {
		if r.Name == resource.Resource {
			return nil
		}
	}
	return fmt.Errorf("discovery has no %s yet", resource)
}
