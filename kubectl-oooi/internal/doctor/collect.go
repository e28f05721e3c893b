package doctor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// Collector reads facts from a cluster.
type Collector struct {
	Client client.Client
	// Config is the API server's, for what is no object: pages of pods. Nil: they are not asked.
	Config *rest.Config
	// Checks are those to read for.
	Checks []Check
	// Now is when.
	Now time.Time
}

// atOnce is how many lists are asked for at a time, and patience for how long one may take.
const (
	atOnce   = 16
	patience = 20 * time.Second
)

// Collect reads what the checks of the Infras of a namespace need, of all with "", or of the one
// that is named. What cannot be read is a fact as well; an error says that there is no Infra to
// be found at all.
func (c *Collector) Collect(ctx context.Context, namespace, name string) (*Facts, []string, error) {
	g := &gathering{client: c.Client, facts: NewFacts(c.Now)}
	r := &read.Reader{Client: c.Client}
	var names []string
	if name != "" {
		if _, err := r.Infra(ctx, namespace, name); err != nil {
			return nil, nil, err //nolint:wrapcheck // it is ours
		}
		names = append(names, namespace+"/"+name)
	} else {
		list, err := r.Infras(ctx, namespace)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // it is ours
		}
		for _, i := range list {
			names = append(names, i.Namespace+"/"+i.Name)
		}
	}
	// Other Infras may be on the same VLAN. Who may not see them sees his own.
	if err := g.gather(ctx, place{infras, ""}); err != nil {
		return nil, nil, err
	}
	if g.facts.why(infras, "") != "" {
		if err := g.gather(ctx, place{infras, namespace}); err != nil {
			return nil, nil, err
		}
	}
	if err := g.gather(ctx, g.hostedPlaces()...); err != nil {
		return nil, nil, err
	}
	if err := g.gather(ctx, c.places(g, names)...); err != nil { // which tells where backends are
		return g.facts, names, err
	}
	if err := g.gather(ctx, c.places(g, names)...); err != nil || c.Config == nil {
		return g.facts, names, err
	}
	return g.facts, names, c.inquire(ctx, g, names)
}

// places are where the checks read objects, as far as it is known.
func (c *Collector) places(g *gathering, names []string) []place {
	var places []place
	for _, infra := range names {
		c.each(NewSite(g.facts, infra), func(r Read, namespace string) {
			if r.object() {
				places = append(places, place{r.Kind, namespace})
			}
		})
	}
	return places
}

// each hands what the checks read about a site to take.
func (c *Collector) each(s *Site, take func(r Read, namespace string)) {
	if s == nil {
		return
	}
	for _, check := range c.Checks {
		for _, r := range check.Reads {
			for _, namespace := range s.namespaces[r.Where] {
				take(r, namespace)
			}
		}
	}
}

// inquire asks for what is no object, once the objects are known: pods for the pages that checks
// read, and the API server for the rights of ServiceAccounts. Several are asked at once.
func (c *Collector) inquire(ctx context.Context, g *gathering, names []string) error {
	l, err := newLine(c.Config)
	if err != nil {
		return err
	}
	open, doubted := map[question]*corev1.Pod{}, map[Right]bool{}
	for _, infra := range names {
		s := NewSite(g.facts, infra)
		c.each(s, func(r Read, namespace string) {
			switch r.Kind {
			case podPages:
				for _, pod := range g.facts.askable(r.Page, namespace, s.Infra.Name) {
					open[question{namespace, pod.Name, r.Page}] = pod
				}
			case accessReviews:
				rights, _ := s.rights() // why there are none, the check says
				for _, right := range rights {
					doubted[right] = true
				}
			}
		})
	}
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for q, pod := range open {
		group.Go(func() error {
			a := l.ask(each, pod, q.page)
			g.lock.Lock()
			defer g.lock.Unlock()
			g.facts.answers[q] = a
			return ctx.Err()
		})
	}
	for right := range doubted {
		group.Go(func() error {
			r := l.review(each, right)
			g.lock.Lock()
			defer g.lock.Unlock()
			g.facts.reviews[right] = r
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("reading the pages and rights of our pods: %w", err)
	}
	return nil
}

// ourCRDs are the names of those that the checks read.
func ourCRDs() []string {
	return append(oldCRDs(), "infras."+v1alpha1.GroupName, "proxyservers."+v1alpha1.GroupName)
}

// oldCRDs are those that the old operator alone has.
func oldCRDs() []string {
	return []string{"dhcpservers." + v1alpha1.GroupName, "dnsservers." + v1alpha1.GroupName}
}

// corefilesIn are the names of the ConfigMaps of the cluster's DNS in a namespace.
func corefilesIn(namespace string) []string {
	var names []string
	for _, c := range []types.NamespacedName{coreConfig, operatorConfig} {
		if c.Namespace == namespace {
			names = append(names, c.Name)
		}
	}
	return names
}

// gathering fills facts.
type gathering struct {
	client client.Client
	facts  *Facts
	done   map[place]bool
	lock   sync.Mutex
}

// hostedPlaces are where the HostedClusters of Infras may be.
func (g *gathering) hostedPlaces() []place {
	places := []place{{hostedClusters, ""}}
	for _, u := range g.facts.list(infras, "") {
		if infra, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra); ok {
			places = append(places, place{hostedClusters, hostedNamespace(infra)})
		}
	}
	return places
}

// networks are the machines' networks of all Infras, "namespace/name".
func (g *gathering) networks() map[string]bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	named := map[string]bool{}
	for _, u := range g.facts.list(infras, "") {
		if infra, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra); ok {
			named[infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace).String()] = true
		}
	}
	return named
}

// gather reads places that were not read before, several at once. It fails only when the context
// ends.
func (g *gathering) gather(ctx context.Context, places ...place) error {
	if g.done == nil {
		g.done = map[place]bool{}
	}
	var open []place
	for _, p := range places {
		if !g.done[p] && (!g.done[place{p.kind, ""}] || g.facts.why(p.kind, "") != "") {
			g.done[p] = true
			open = append(open, p)
		}
	}
	group, each := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, p := range open {
		group.Go(func() error {
			g.one(each, p)
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("reading the cluster: %w", err)
	}
	return nil
}

// one reads one place.
func (g *gathering) one(ctx context.Context, p place) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var list []*unstructured.Unstructured
	take := func(u *unstructured.Unstructured) { list = append(list, u) }
	var err error
	switch p.kind {
	case crds: // others' are large, and nobody's business
		err = g.named(ctx, p, take, ourCRDs()...)
	case configMaps: // which may hold anything
		if err = g.named(ctx, p, take, corefilesIn(p.namespace)...); err == nil {
			err = g.list(ctx, p, take, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
		}
	case refusals:
		err = g.list(ctx, p, take, client.MatchingFields{"reason": "FailedCreate", "involvedObject.kind": statefulSets.Kind})
	case leaseObjects: // others' holders are none of DHCP's business
		err = g.list(ctx, p, take, client.HasLabels{leases.PoolLabel})
	case pods: // others' may say anything in their status
		err = g.list(ctx, p, take, client.MatchingLabels{labelPartOf: partOf})
	case attachments: // others' may have anything in their configuration
		named := g.networks()
		err = g.list(ctx, p, func(u *unstructured.Unstructured) {
			if named[u.GetNamespace()+"/"+u.GetName()] || u.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
				take(u)
			}
		})
	default:
		err = g.list(ctx, p, take)
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	for _, u := range list {
		g.facts.add(u)
	}
	switch {
	case errors.Is(err, read.ErrNotServed):
		g.facts.unserved[p.kind] = true
	case err != nil:
		g.facts.unread[p] = err.Error()
	}
}

func (g *gathering) list(ctx context.Context, p place, take func(*unstructured.Unstructured), more ...client.ListOption) error {
	r := &read.Reader{Client: g.client}
	return r.In(ctx, p.kind, p.namespace, take, more...) //nolint:wrapcheck // it is ours
}

// named reads single objects, those that there are.
func (g *gathering) named(ctx context.Context, p place, take func(*unstructured.Unstructured), names ...string) error {
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
			return fmt.Errorf("reading %s %s: %w", p.kind.Kind, name, err)
		}
	}
	return nil
}
