package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Collector reads facts from a cluster.
type Collector struct {
	Client client.Client
	// Config is the connection for requests to pods and for their logs; nil to send none.
	Config *rest.Config
	// Reads lists the data to read for each site.
	Reads []Read
	// Now is the time of the facts.
	Now time.Time
	// Concurrency limits concurrent requests; 0 for maxConcurrent.
	Concurrency int
}

// maxConcurrent is the default of Collector.Concurrency, and requestTimeout the limit of each list.
const (
	maxConcurrent  = 16
	requestTimeout = 20 * time.Second
)

// Collect reads one Infra or standalone ProxyServer; if name is empty, all of the namespace, or of all namespaces if namespace
// is empty, too. It also returns their keys "namespace/name". Data that cannot be read is not an error: the facts have the reason.
// Collect returns an error if the Infras cannot be read, if Config is invalid, or if ctx is done; the facts are then nil or
// incomplete.
func (c *Collector) Collect(ctx context.Context, namespace, name string) (*Facts, []string, error) {
	g := c.collection(NewFacts(c.Now))
	if err := g.collect(ctx, place{ProxyServers, namespace}); err != nil { // has the standalone ones
		return nil, nil, err
	}
	names, err := c.names(ctx, g, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if err := c.extend(ctx, g, namespace, names); err != nil || c.Config == nil {
		return g.facts, names, err
	}
	return g.facts, names, c.queryPods(ctx, g.facts, names)
}

// Extend reads objects that facts lack about an Infra or standalone ProxyServer, both as deployed and as changed by objects, which replace
// objects of the same kind and name. Data that cannot be read is not an error: the facts have the reason. Extend changes the facts, and
// returns an error if ctx is done.
func (c *Collector) Extend(ctx context.Context, facts *Facts, key types.NamespacedName, objects ...*unstructured.Unstructured) error {
	g := c.collection(facts, objects...)
	return c.extend(ctx, g, key.Namespace, []string{key.String()})
}

func (c *Collector) extend(ctx context.Context, g *collection, namespace string, names []string) error {
	// Infras in other namespaces may be on the same VLAN. For a user who cannot list them, the namespace's Infras are read.
	if err := g.collect(ctx, place{Infras, ""}); err != nil {
		return err
	}
	if g.facts.Unread(Infras, "") != "" {
		if err := g.collect(ctx, place{Infras, namespace}); err != nil {
			return err
		}
	}
	if err := g.collect(ctx, g.hostedPlaces()...); err != nil {
		return err
	}
	var everywhere []place // before namespaces, which are read only if reading all is forbidden
	for _, r := range c.Reads {
		if r.Where == Everywhere && r.stored() {
			everywhere = append(everywhere, place{r.Kind, ""})
		}
	}
	if err := g.collect(ctx, everywhere...); err != nil {
		return err
	}
	for range 2 { // the first round finds the namespaces of control planes and backends
		if err := g.collect(ctx, c.places(g, names)...); err != nil {
			return err
		}
	}
	return nil
}

// names returns the Infras and standalone ProxyServers to read.
func (c *Collector) names(ctx context.Context, g *collection, namespace, name string) ([]string, error) {
	r := &read.Reader{Client: c.Client}
	if name != "" {
		if _, err := r.Infra(ctx, namespace, name); err != nil && (len(g.facts.Names(namespace, name)) == 0 || !apierrors.IsNotFound(err)) {
			return nil, err
		}
		return []string{namespace + "/" + name}, nil
	}
	list, err := r.Infras(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Namespace+"/"+i.Name)
	}
	return append(names, g.facts.Names(namespace, "")...), nil // no Infras were added yet
}

// places returns the places of all objects that are read, as far as they are known from the facts collected so far.
func (c *Collector) places(g *collection, names []string) []place {
	var places []place
	versions := g.versions()
	for nad := range versions[0].infraNetworks() { // networks of other Infras may be the same
		namespace, _, _ := strings.Cut(nad, "/")
		places = append(places, place{NADs, namespace})
	}
	for _, facts := range versions {
		for _, name := range names {
			if s := New(facts, name, nil); s != nil {
				places = append(places, c.sitePlaces(s)...)
			}
		}
	}
	return places
}

// sitePlaces returns the places of a site.
func (c *Collector) sitePlaces(s *Site) []place {
	var places []place
	for _, r := range c.Reads {
		for _, namespace := range s.namespaces[r.Where] {
			if r.stored() {
				places = append(places, place{r.Kind, namespace})
			}
			if r.Kind == VMIs {
				places = append(places, place{NADs, namespace})
			}
		}
	}
	return places
}

// queryPods requests /problems from the sites' daemons, and reads the logs of crashed containers.
func (c *Collector) queryPods(ctx context.Context, facts *Facts, names []string) error {
	clients, err := NewClients(c.Config)
	if err != nil {
		return err
	}
	requests := map[any]func(context.Context){}
	var lock sync.Mutex
	for _, name := range names {
		s := New(facts, name, nil)
		for _, r := range c.Reads {
			if s == nil || r.stored() {
				continue
			}
			for _, p := range s.servingPods(r.Where) {
				c.podRequests(clients, facts, &lock, r.Kind, p, requests)
			}
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(c.Concurrency, maxConcurrent))
	for _, request := range requests {
		group.Go(func() error {
			request(groupCtx)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("requesting problems and logs from oooi's pods: %w", err)
	}
	return nil
}

// podRequests adds the requests of a kind for a pod.
func (c *Collector) podRequests(
	clients *kubernetes.Clientset, facts *Facts, lock *sync.Mutex, kind Kind, p *corev1.Pod, requests map[any]func(context.Context),
) {
	if kind == Problems {
		for _, container := range daemonsOf(p) {
			key := responseKey{p.Namespace, p.Name, container}
			requests[key] = func(ctx context.Context) {
				a := requestProblems(ctx, clients, key)
				lock.Lock()
				defer lock.Unlock()
				facts.responses[key] = a
			}
		}
		return
	}
	for container, restarted := range crashed(p) {
		key := logKey{p.Namespace, p.Name, container}
		requests[key] = func(ctx context.Context) {
			l := readLog(ctx, clients, key, restarted)
			lock.Lock()
			defer lock.Unlock()
			facts.logs[key] = l
		}
	}
}

// crdNames returns the names of the CRDs that are read.
func crdNames() []string {
	return []string{"infras." + v1alpha1.GroupName, "proxyservers." + v1alpha1.GroupName}
}

// configMapNames returns the names of the ConfigMaps of other programs that are read in a namespace, or in all.
func configMapNames(namespace string) []string {
	var names []string
	for _, c := range slices.Concat([]types.NamespacedName{CoreConfig, OperatorConfig}, read.MultusConfigs) {
		if namespace == "" || c.Namespace == namespace {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// collection collects objects into facts, each place once.
type collection struct {
	client      client.Client
	facts       *Facts
	objects     []*unstructured.Unstructured // see Collector.Extend
	concurrency int
	lock        sync.Mutex
}

func (c *Collector) collection(facts *Facts, objects ...*unstructured.Unstructured) *collection {
	return &collection{client: c.Client, facts: facts, objects: objects, concurrency: cmp.Or(c.Concurrency, maxConcurrent)}
}

// versions returns the facts with the collection's objects and, if it has objects, also the facts without them.
func (g *collection) versions() []*Facts {
	if len(g.objects) == 0 {
		return []*Facts{g.facts}
	}
	return []*Facts{g.facts.With(g.objects...), g.facts}
}

// hostedPlaces returns the places of the Infras' HostedClusters.
func (g *collection) hostedPlaces() []place {
	places := []place{{HostedClusters, ""}}
	for _, facts := range g.versions() {
		for _, infra := range facts.Infras() {
			for _, namespace := range hostedNamespaces(infra) {
				places = append(places, place{HostedClusters, namespace})
			}
		}
	}
	return places
}

// collect reads places concurrently. It skips places that were read before, and places of a kind that was read in all
// namespaces. It returns an error only if ctx is done.
func (g *collection) collect(ctx context.Context, places ...place) error {
	var pending []place
	for _, p := range places {
		if all := (place{p.kind, ""}); !g.facts.attempted[p] && (!g.facts.attempted[all] || g.facts.unread[all] != nil) {
			g.facts.attempted[p] = true
			pending = append(pending, p)
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(g.concurrency)
	for _, p := range pending {
		group.Go(func() error {
			g.collectPlace(groupCtx, p)
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("listing %s: %w", p, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("reading objects from the cluster: %w", err)
	}
	return nil
}

// collectPlace reads one place. An error is recorded in the facts.
func (g *collection) collectPlace(ctx context.Context, p place) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var list []*unstructured.Unstructured
	take := func(u *unstructured.Unstructured) { list = append(list, u) }
	err := g.read(ctx, p, take)
	for _, u := range list {
		g.facts.Add(u)
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	switch {
	case errors.Is(err, read.ErrNotServed):
		g.facts.unserved[p.kind] = true
	case err != nil:
		g.facts.unread[p] = err
	}
}

// read reads the objects of a place that are needed, and calls take with each.
func (g *collection) read(ctx context.Context, p place, take func(*unstructured.Unstructured)) error {
	managed := client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
	switch p.kind {
	case CRDs: // other CRDs are large
		return g.named(ctx, p, take, crdNames()...)
	case ClusterDNS, ClusterIngress:
		return g.named(ctx, p, take, "cluster")
	case Namespaces: // the namespace itself
		return g.named(ctx, place{kind: p.kind}, take, p.namespace)
	case Constraints: // only whether the kind is served matters
		_, err := g.client.RESTMapper().RESTMapping(p.kind.GroupKind(), p.kind.Version)
		if meta.IsNoMatchError(err) {
			return read.ErrNotServed
		}
		return err
	case ConfigMaps: // others may contain secrets
		if err := g.named(ctx, p, take, configMapNames(p.namespace)...); err != nil {
			return err
		}
		return g.list(ctx, p, take, managed)
	case Events:
		return g.list(ctx, p, func(u *unstructured.Unstructured) {
			if kind, _, _ := unstructured.NestedString(u.Object, "involvedObject", "kind"); kind == Pods.Kind || kind == StatefulSets.Kind {
				take(u)
			}
		}, client.MatchingFields{"type": corev1.EventTypeWarning})
	case Leases: // other Leases do not belong to DHCP or control
		if p.namespace == render.SystemNamespace {
			return g.list(ctx, p, take, client.MatchingFields{"metadata.name": render.ControlName})
		}
		return g.list(ctx, p, take, client.HasLabels{leases.PoolLabel})
	case Pods:
		if err := g.list(ctx, p, take, client.MatchingLabels{LabelPartOf: PartOf}); err != nil {
			return err
		}
		return g.list(ctx, p, take, client.HasLabels{LabelCreatedBy})
	default:
		return g.list(ctx, p, take)
	}
}

// Labels of pods that are read.
const (
	// LabelPartOf has the value PartOf on oooi's objects.
	LabelPartOf = "app.kubernetes.io/part-of"
	PartOf      = "oooi"
	// LabelCreatedBy is the label of KubeVirt's pods with the UID of their VirtualMachineInstance.
	LabelCreatedBy = "kubevirt.io/created-by"
)

func (g *collection) list(ctx context.Context, p place, take func(*unstructured.Unstructured), more ...client.ListOption) error {
	r := &read.Reader{Client: g.client}
	return r.In(ctx, p.kind, p.namespace, take, more...)
}

// named reads objects by name and ignores those that do not exist. It returns read.ErrNotServed if the API server does not
// serve the kind.
func (g *collection) named(ctx context.Context, p place, take func(*unstructured.Unstructured), names ...string) error {
	for _, name := range names {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(p.kind)
		err := g.client.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: name}, u)
		switch {
		case err == nil:
			take(u)
		case meta.IsNoMatchError(err):
			return read.ErrNotServed
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("reading %s: %w", model.Ref{Kind: p.kind.Kind, Namespace: p.namespace, Name: name}, err)
		}
	}
	return nil
}
