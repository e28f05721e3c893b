// Package adstest is a client of ADS that asks as Envoy does, for tests.
package adstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Options say who a Client is.
type Options struct {
	// Cluster and ID are the node's.
	Cluster, ID string
	// Reject refuses a response with a text; nil or an empty text accepts it. It is
	// called from the Client's goroutine.
	Reject func(*discoveryv3.DeltaDiscoveryResponse) string
	// Resume is what an earlier Client had, for one that comes back; nil for none.
	Resume *View
}

// Response is one that was received.
type Response struct {
	Type    string
	Names   []string // in order
	Removed []string // in order
	Bytes   int      // on the wire, without gRPC's frame
	Refused bool
}

// View is what a Client has. It is a copy.
type View struct {
	// Resources are by type and name.
	Resources map[string]map[string]*discoveryv3.Resource
	// Responses are all that were received, in order.
	Responses []Response
	// Err is why the stream ended; nil while it lives.
	Err error
}

// Names are the resources of a type, in order.
func (v *View) Names(typeURL string) []string { return slices.Sorted(maps.Keys(v.Resources[typeURL])) }

// Unmarshal fills m with a resource.
func (v *View) Unmarshal(typeURL, name string, m proto.Message) error {
	r := v.Resources[typeURL][name]
	if r == nil {
		return fmt.Errorf("there is no %s %q", typeURL, name)
	}
	return r.GetResource().UnmarshalTo(m)
}

func (v *View) clone() *View {
	c := &View{Resources: map[string]map[string]*discoveryv3.Resource{}, Responses: slices.Clone(v.Responses), Err: v.Err}
	for typeURL, resources := range v.Resources {
		c.Resources[typeURL] = maps.Clone(resources)
	}
	return c
}

// Client asks for all clusters and listeners, then for the endpoints and routes that
// they name, and answers every response: one with clusters only when the endpoints of
// each have come, as Envoy does. All methods are safe for concurrent use.
type Client struct {
	options Options
	stream  discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel  context.CancelFunc
	done    chan struct{}

	sending sync.Mutex // a stream takes one sender

	// Of the receiving goroutine alone.
	warming map[string]bool                      // endpoints that new and changed clusters wait for
	held    []*discoveryv3.DeltaDiscoveryRequest // answers until then

	mu         sync.Mutex
	view       *View
	subscribed map[string]map[string]bool // by type; routes and endpoints
	changed    chan struct{}              // closed at each change of view
}

// Connect opens a stream, which lives until Close or until the context ends.
func Connect(ctx context.Context, conn grpc.ClientConnInterface, options Options) (*Client, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("opening the stream: %w", err)
	}
	c := &Client{
		options: options, stream: stream, cancel: cancel, done: make(chan struct{}),
		view:       (&View{}).clone(),
		warming:    map[string]bool{},
		subscribed: map[string]map[string]bool{resource.EndpointType: {}, resource.RouteType: {}},
		changed:    make(chan struct{}),
	}
	if options.Resume != nil {
		c.view.Resources = options.Resume.clone().Resources
	}
	if err := c.start(); err != nil {
		cancel()
		return nil, err
	}
	go c.receive()
	return c, nil
}

// start sends the first requests, in Envoy's order: those for all of a type, and
// after a reconnection those for what is named already.
func (c *Client) start() error {
	for _, typeURL := range []string{resource.ClusterType, resource.EndpointType, resource.ListenerType, resource.RouteType} {
		r := &discoveryv3.DeltaDiscoveryRequest{
			Node:    &corev3.Node{Cluster: c.options.Cluster, Id: c.options.ID},
			TypeUrl: typeURL, InitialResourceVersions: map[string]string{},
		}
		for name, m := range c.view.Resources[typeURL] {
			r.InitialResourceVersions[name] = m.GetVersion()
		}
		if subscribed := c.subscribed[typeURL]; subscribed != nil {
			r.ResourceNamesSubscribe = c.named(typeURL)
			if len(r.ResourceNamesSubscribe) == 0 {
				continue
			}
			for _, name := range r.ResourceNamesSubscribe {
				subscribed[name] = true
			}
		}
		if err := c.send(r); err != nil {
			return err
		}
	}
	return nil
}

// Subscribe asks for more names of a type, and for no longer some others.
func (c *Client) Subscribe(typeURL string, names, notNames []string) error {
	return c.send(&discoveryv3.DeltaDiscoveryRequest{
		Node:    &corev3.Node{Cluster: c.options.Cluster, Id: c.options.ID},
		TypeUrl: typeURL, ResourceNamesSubscribe: names, ResourceNamesUnsubscribe: notNames,
	})
}

// Send sends a request as it is.
func (c *Client) Send(r *discoveryv3.DeltaDiscoveryRequest) error { return c.send(r) }

// Close ends the stream and waits until it has ended.
func (c *Client) Close() {
	c.cancel()
	<-c.done
}

// View is what the Client has now.
func (c *Client) View() *View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.clone()
}

// Await returns the first view that good is content with, or the last one and an
// error when the context or the stream ends.
func (c *Client) Await(ctx context.Context, good func(*View) bool) (*View, error) {
	for {
		c.mu.Lock()
		view, changed := c.view.clone(), c.changed
		c.mu.Unlock()
		if good(view) {
			return view, nil
		}
		if view.Err != nil {
			return view, view.Err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return view, fmt.Errorf("waiting for configuration: %w", ctx.Err())
		}
	}
}

func (c *Client) send(r *discoveryv3.DeltaDiscoveryRequest) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	// At the end of a stream Recv says why.
	if err := c.stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("sending a request: %w", err)
	}
	return nil
}

func (c *Client) receive() {
	defer close(c.done)
	for {
		r, err := c.stream.Recv()
		if err == nil {
			err = c.handle(r)
		}
		if err != nil {
			c.change(func(v *View) { v.Err = err })
			return
		}
	}
}

func (c *Client) change(f func(*View)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.view)
	close(c.changed)
	c.changed = make(chan struct{})
}

// handle shows a response, answers it and asks for what it names. Who sees the
// answer on the server finds the response in View.
func (c *Client) handle(r *discoveryv3.DeltaDiscoveryResponse) error {
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	response := Response{Type: r.GetTypeUrl(), Removed: slices.Sorted(slices.Values(r.GetRemovedResources())), Bytes: proto.Size(r)}
	for _, m := range r.GetResources() {
		response.Names = append(response.Names, m.GetName())
	}
	slices.Sort(response.Names)
	if c.options.Reject != nil {
		if text := c.options.Reject(r); text != "" {
			answer.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: text}
			response.Refused = true
		}
	}
	c.change(func(v *View) {
		v.Responses = append(v.Responses, response)
		if response.Refused {
			return
		}
		resources := v.Resources[r.GetTypeUrl()]
		if resources == nil {
			resources = map[string]*discoveryv3.Resource{}
			v.Resources[r.GetTypeUrl()] = resources
		}
		for _, m := range r.GetResources() {
			resources[m.GetName()] = m
		}
		for _, name := range r.GetRemovedResources() {
			delete(resources, name)
		}
	})
	switch r.GetTypeUrl() {
	case resource.ClusterType:
		if !response.Refused {
			maps.Copy(c.warming, references(r.GetResources(), &clusterv3.Cluster{})[resource.EndpointType])
			c.held = append(c.held, answer)
		} else if err := c.send(answer); err != nil {
			return err
		}
		if err := c.follow(resource.EndpointType); err != nil {
			return err
		}
		return c.warm(nil)
	case resource.EndpointType:
		if err := c.send(answer); err != nil {
			return err
		}
		return c.warm(response.Names)
	case resource.ListenerType:
		if err := c.send(answer); err != nil {
			return err
		}
		return c.follow(resource.RouteType)
	}
	return c.send(answer)
}

// warm sends the answers that are held when no cluster waits for endpoints any more.
func (c *Client) warm(names []string) error {
	for _, name := range names {
		delete(c.warming, name)
	}
	if len(c.warming) > 0 {
		return nil
	}
	held := c.held
	c.held = nil
	for _, answer := range held {
		if err := c.send(answer); err != nil {
			return err
		}
	}
	return nil
}

// follow brings the subscription of a type up to the names that are in use.
func (c *Client) follow(typeURL string) error {
	c.mu.Lock()
	subscribed := c.subscribed[typeURL]
	var more, less []string
	named := map[string]bool{}
	for _, name := range c.named(typeURL) {
		named[name] = true
		if !subscribed[name] {
			more = append(more, name)
			subscribed[name] = true
		}
	}
	for name := range subscribed {
		if !named[name] {
			less = append(less, name)
			delete(subscribed, name)
			delete(c.view.Resources[typeURL], name)
		}
	}
	c.mu.Unlock()
	if len(more) == 0 && len(less) == 0 {
		return nil
	}
	return c.Subscribe(typeURL, more, less)
}

// named are the routes that listeners name, or the endpoints that clusters do.
func (c *Client) named(typeURL string) []string {
	if typeURL == resource.RouteType {
		return slices.Sorted(maps.Keys(references(slices.Collect(maps.Values(c.view.Resources[resource.ListenerType])), &listenerv3.Listener{})[typeURL]))
	}
	return slices.Sorted(maps.Keys(references(slices.Collect(maps.Values(c.view.Resources[resource.ClusterType])), &clusterv3.Cluster{})[typeURL]))
}

// references are the names in resources, which are all of kind's type, by the type
// of what is named.
func references(resources []*discoveryv3.Resource, kind proto.Message) map[string]map[string]bool {
	all := map[string]types.ResourceWithTTL{}
	for _, r := range resources {
		m := proto.Clone(kind)
		if r.GetResource().UnmarshalTo(m) == nil {
			all[r.GetName()] = types.ResourceWithTTL{Resource: m}
		}
	}
	return cache.GetResourceReferences(all)
}
