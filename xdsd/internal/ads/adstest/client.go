// Package adstest provides a delta ADS client for tests that sends requests and acknowledgements in Envoy's order.
package adstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Options configure a Client.
type Options struct {
	// Cluster and ID are the node.cluster and node.id.
	Cluster, ID string
	// Reject returns the NACK message for a response, or "" to accept it. The Client's goroutine calls it. If it is
	// nil, all responses are accepted.
	Reject func(*discoveryv3.DeltaDiscoveryResponse) string
	// Resume is an earlier Client's View, whose resources the Client starts with, like an Envoy that reconnects; nil
	// means none.
	Resume *View
}

// A Response is a response that was received.
type Response struct {
	Type     string   // type URL
	Names    []string // sorted
	Removed  []string // sorted
	Bytes    int      // size of the message, without gRPC's frame
	Rejected bool     // answered with a NACK
}

// A View is a copy of the state of a Client.
type View struct {
	// Resources are the resources that were received and not removed, by type URL and name.
	Resources map[string]map[string]*discoveryv3.Resource
	// Responses are all responses, in the order in which they were received.
	Responses []Response
	// Err is the error that ended the stream; nil while the stream is open.
	Err error
}

// Names returns the sorted names of the resources of a type.
func (v *View) Names(typeURL string) []string { return slices.Sorted(maps.Keys(v.Resources[typeURL])) }

// Unmarshal decodes a resource into m. It returns an error if the View does not have the resource, or if m has another
// type.
func (v *View) Unmarshal(typeURL, name string, m proto.Message) error {
	r := v.Resources[typeURL][name]
	if r == nil {
		return fmt.Errorf("%s %q not found", typeURL, name)
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

// A Client requests all clusters and listeners, and the endpoints and routes that they reference. It acknowledges or
// rejects every response. Like Envoy, it acknowledges clusters only after each cluster's endpoints have arrived. All
// methods are safe for concurrent use.
type Client struct {
	options Options
	stream  discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	cancel  context.CancelFunc
	done    chan struct{}

	sending sync.Mutex // a gRPC stream permits one sender at a time

	// Used only by the receiving goroutine.
	warming map[string]bool                      // names of endpoints that new and changed clusters wait for
	delayed []*discoveryv3.DeltaDiscoveryRequest // ACKs and NACKs to send when warming is empty

	mu         sync.Mutex
	view       *View
	subscribed map[string]map[string]bool // names by type URL, for routes and endpoints
	changed    chan struct{}              // closed and replaced at each change to view
}

// Connect opens a stream and sends the first requests. The stream ends with Close or with the context. The caller must
// call Close.
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

// start sends the first requests in Envoy's order: wildcard requests for clusters and listeners and, after a
// reconnection, requests for the endpoints and routes that the known clusters and listeners reference.
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
			r.ResourceNamesSubscribe = c.referenced(typeURL)
			if len(r.ResourceNamesSubscribe) == 0 {
				continue
			}
			for _, name := range r.ResourceNamesSubscribe {
				subscribed[name] = true
			}
		}
		if err := c.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// Subscribe sends a request that subscribes to some names of a type and unsubscribes from others. If the stream has
// ended, it returns nil; View.Err has the reason.
func (c *Client) Subscribe(typeURL string, subscribe, unsubscribe []string) error {
	return c.Send(&discoveryv3.DeltaDiscoveryRequest{
		Node:    &corev3.Node{Cluster: c.options.Cluster, Id: c.options.ID},
		TypeUrl: typeURL, ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe,
	})
}

// Send sends r unchanged. If the stream has ended, it returns nil; View.Err has the reason.
func (c *Client) Send(r *discoveryv3.DeltaDiscoveryRequest) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	// If the stream has ended, Send returns io.EOF and Recv returns the reason.
	if err := c.stream.Send(r); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("sending a request: %w", err)
	}
	return nil
}

// Close ends the stream and waits until it has ended.
func (c *Client) Close() {
	c.cancel()
	<-c.done
}

// View returns a copy of the current state of the Client.
func (c *Client) View() *View {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view.clone()
}

// Await waits until condition returns true for a View and returns that View. If the context or the stream ends first,
// it returns the last View and an error.
func (c *Client) Await(ctx context.Context, condition func(*View) bool) (*View, error) {
	for {
		c.mu.Lock()
		view, changed := c.view.clone(), c.changed
		c.mu.Unlock()
		if condition(view) {
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

// handle adds a response to the view, answers it and subscribes to the names that it references. It changes the view
// before it sends the ACK: a test that observes the ACK at the server finds the response in View.
func (c *Client) handle(r *discoveryv3.DeltaDiscoveryResponse) error {
	answer := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
	response := Response{Type: r.GetTypeUrl(), Removed: slices.Sorted(slices.Values(r.GetRemovedResources())), Bytes: proto.Size(r)}
	for _, m := range r.GetResources() {
		response.Names = append(response.Names, m.GetName())
	}
	slices.Sort(response.Names)
	if c.options.Reject != nil {
		if text := c.options.Reject(r); text != "" {
			answer.ErrorDetail = status.New(codes.InvalidArgument, text).Proto()
			response.Rejected = true
		}
	}
	c.change(func(v *View) {
		v.Responses = append(v.Responses, response)
		if response.Rejected {
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
	if r.GetTypeUrl() == resource.ClusterType && !response.Rejected {
		maps.Copy(c.warming, references(slices.Values(r.GetResources()))[resource.EndpointType])
		c.delayed = append(c.delayed, answer)
	} else if err := c.Send(answer); err != nil {
		return err
	}
	switch r.GetTypeUrl() {
	case resource.ClusterType:
		if err := c.updateSubscription(resource.EndpointType); err != nil {
			return err
		}
		return c.endpointsReceived(nil)
	case resource.EndpointType:
		return c.endpointsReceived(response.Names)
	case resource.ListenerType:
		return c.updateSubscription(resource.RouteType)
	}
	return nil
}

// endpointsReceived sends the delayed ACKs if no cluster waits for endpoints other than names.
func (c *Client) endpointsReceived(names []string) error {
	for _, name := range names {
		delete(c.warming, name)
	}
	if len(c.warming) > 0 {
		return nil
	}
	delayed := c.delayed
	c.delayed = nil
	for _, answer := range delayed {
		if err := c.Send(answer); err != nil {
			return err
		}
	}
	return nil
}

// updateSubscription subscribes to the names of a type that are referenced, and unsubscribes from all others.
func (c *Client) updateSubscription(typeURL string) error {
	c.mu.Lock()
	subscribed := c.subscribed[typeURL]
	var subscribe, unsubscribe []string
	referenced := map[string]bool{}
	for _, name := range c.referenced(typeURL) {
		referenced[name] = true
		if !subscribed[name] {
			subscribe = append(subscribe, name)
			subscribed[name] = true
		}
	}
	for name := range subscribed {
		if !referenced[name] {
			unsubscribe = append(unsubscribe, name)
			delete(subscribed, name)
			delete(c.view.Resources[typeURL], name)
		}
	}
	c.mu.Unlock()
	if len(subscribe) == 0 && len(unsubscribe) == 0 {
		return nil
	}
	return c.Subscribe(typeURL, subscribe, unsubscribe)
}

// referenced returns the sorted names of the routes that listeners reference, or of the endpoints that clusters do.
func (c *Client) referenced(typeURL string) []string {
	from := resource.ClusterType
	if typeURL == resource.RouteType {
		from = resource.ListenerType
	}
	return slices.Sorted(maps.Keys(references(maps.Values(c.view.Resources[from]))[typeURL]))
}

// references returns the names that resources of one type reference, by type URL.
func references(resources iter.Seq[*discoveryv3.Resource]) map[string]map[string]bool {
	all := map[string]types.ResourceWithTTL{}
	for r := range resources {
		if m, err := r.GetResource().UnmarshalNew(); err == nil {
			all[r.GetName()] = types.ResourceWithTTL{Resource: m}
		}
	}
	return cache.GetResourceReferences(all)
}
