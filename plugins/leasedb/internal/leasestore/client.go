package leasestore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// A client reads and writes the Leases of one namespace. The client of client-go would add 11 MB to the program: it imports the types
// of all API groups, and code for tests.
type client struct {
	rest      *rest.RESTClient
	namespace string
	codec     runtime.ParameterCodec
}

// newClient returns a client, and changes config.
func newClient(config *rest.Config, namespace string) (*client, error) {
	scheme := runtime.NewScheme()
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering Leases: %w", err)
	}
	config.APIPath, config.GroupVersion = "/apis", &coordinationv1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	config.UserAgent = cmp.Or(config.UserAgent, rest.DefaultKubernetesUserAgent())
	r, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for %s: %w", config.Host, err)
	}
	return &client{r, namespace, runtime.NewParameterCodec(scheme)}, nil
}

// do sends a request for Leases, and returns the Lease in the response.
func (c *client) do(ctx context.Context, r *rest.Request) (*coordinationv1.Lease, error) {
	lease := &coordinationv1.Lease{}
	return lease, r.Do(ctx).Into(lease)
}

// on adds the Lease with a name, or without one all Leases, to a request.
func (c *client) on(r *rest.Request, name string) *rest.Request {
	r.Namespace(c.namespace).Resource("leases")
	if name != "" {
		r.Name(name)
	}
	return r
}

func (c *client) create(ctx context.Context, o *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, c.on(c.rest.Post(), "").Body(o))
}

func (c *client) update(ctx context.Context, o *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return c.do(ctx, c.on(c.rest.Put(), o.Name).Body(o))
}

func (c *client) get(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	return c.do(ctx, c.on(c.rest.Get(), name))
}

func (c *client) delete(ctx context.Context, name string, o *metav1.DeleteOptions) error {
	return c.on(c.rest.Delete(), name).Body(o).Do(ctx).Error()
}

// selected returns a request for the Leases that the options select.
func (c *client) selected(o *metav1.ListOptions) *rest.Request {
	r := c.on(c.rest.Get(), "").VersionedParams(o, c.codec)
	if o.TimeoutSeconds != nil {
		r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return r
}

func (c *client) list(ctx context.Context, o *metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	list := &coordinationv1.LeaseList{}
	return list, c.selected(o).Do(ctx).Into(list)
}

func (c *client) watch(ctx context.Context, o *metav1.ListOptions) (apiwatch.Interface, error) {
	o.Watch = true
	return c.selected(o).Watch(ctx)
}
