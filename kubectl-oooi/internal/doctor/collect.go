package doctor

import (
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
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
)

// Collector reads facts from a cluster.
type Collector struct {
	Client client.Client
	// Config is the connection over which pages of pods and access reviews are requested; nil to request none.
	Config *rest.Config
	// Checks are the checks whose Reads are collected.
	Checks []Check
	// Now is the time of the facts.
	Now time.Time
}

// maxConcurrent is the number of concurrent requests, and requestTimeout the limit of each list or review.
const (
	maxConcurrent  = 16
	requestTimeout = 20 * time.Second
)

// Collect reads the data that the checks need for one Infra or standalone ProxyServer; if name is empty, for all of the
// namespace, or of all namespaces if namespace is empty, too. It also returns these as "namespace/name". Data that
// cannot be read is not an error: the reason is recorded in the facts. Collect returns an error if the Infras
// cannot be read, if Config is invalid, or if ctx ends; the facts are then nil or incomplete.
func (c *Collector) Collect(ctx context.Context, namespace, name string) (*Facts, []string, error) {
	g := &collection{client: c.Client, facts: NewFacts(c.Now)}
	r := &read.Reader{Client: c.Client}
	if err := g.collect(ctx, place{proxyServers, namespace}); err != nil { // has the standalone ones
		return nil, nil, err
	}
	var names []string
	if name != "" {
		names = g.facts.Infras(namespace, name)
		if _, err := r.Infra(ctx, namespace, name); err != nil && (len(names) == 0 || !apierrors.IsNotFound(err)) {
			return nil, nil, err //nolint:wrapcheck // error of an internal package
		}
		names = []string{namespace + "/" + name}
	} else {
		list, err := r.Infras(ctx, namespace)
		if err != nil {
			return nil, nil, err //nolint:wrapcheck // error of an internal package
		}
		for _, i := range list {
			names = append(names, i.Namespace+"/"+i.Name)
		}
		names = append(names, g.facts.Infras(namespace, "")...) // no Infras were added yet
	}
	// Infras of other namespaces may be on the same VLAN. A user who cannot list these gets those of the
	// namespace.
	if err := g.collect(ctx, place{infras, ""}); err != nil {
		return nil, nil, err
	}
	if g.facts.unreadReason(infras, "") != "" {
		if err := g.collect(ctx, place{infras, namespace}); err != nil {
			return nil, nil, err
		}
	}
	if err := g.collect(ctx, g.hostedPlaces()...); err != nil {
		return nil, nil, err
	}
	if err := g.collect(ctx, c.places(g, names)...); err != nil { // finds the namespaces of backends
		return g.facts, names, err
	}
	if err := g.collect(ctx, c.places(g, names)...); err != nil {
		return g.facts, names, err
	}
	sites := g.facts.sites(names)
	if err := g.collectUnlabelled(ctx, sites); err != nil {
		return g.facts, names, err
	}
	g.facts.compare(sites)
	if c.Config == nil {
		return g.facts, names, nil
	}
	return g.facts, names, c.collectAnswers(ctx, g, names)
}

// places returns the places of all objects that the checks read, as far as they are known from the facts collected so
// far.
func (c *Collector) places(g *collection, names []string) []place {
	var places []place
	g.controlPlanes = map[string]bool{}
	for nad := range g.networks() { // networks of other Infras may be the same
		namespace, _, _ := strings.Cut(nad, "/")
		places = append(places, place{attachments, namespace})
	}
	for _, infra := range names {
		c.eachRead(NewSite(g.facts, infra), func(r Read, namespace string) {
			if r.Kind == machines {
				places = append(places, place{attachments, namespace})
			}
			if r.Where == AtControlPlane {
				g.controlPlanes[namespace] = true
			}
			if r.object() {
				places = append(places, place{r.Kind, namespace})
			}
		})
	}
	return places
}

// eachRead calls take for each Read of the checks, in each of its namespaces. It does nothing if s is nil.
func (c *Collector) eachRead(s *Site, take func(r Read, namespace string)) {
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

// collectAnswers requests the pages and logs of pods and the access reviews that the checks read. The objects must have
// been collected.
func (c *Collector) collectAnswers(ctx context.Context, g *collection, names []string) error {
	clients, err := newClients(c.Config)
	if err != nil {
		return err
	}
	pages, reviews, logs := map[pageKey]*corev1.Pod{}, map[Right]bool{}, map[logKey]func(context.Context) *Log{}
	for _, infra := range names {
		s := NewSite(g.facts, infra)
		c.eachRead(s, func(r Read, namespace string) {
			switch r.Kind {
			case podPages:
				for _, pod := range g.facts.servingPods(r.Page, namespace, s.owns) {
					pages[pageKey{namespace, pod.Name, r.Page}] = pod
				}
			case podLogs:
				for _, pod := range s.ownPods(namespace) {
					for _, crashed := range crashes(pod, g.facts.Taken) {
						if !slices.Contains(loggedContainers, crashed.Name) {
							continue
						}
						logs[logKey{namespace, pod.Name, crashed.Name}] = func(ctx context.Context) *Log { return getLog(ctx, clients, pod, &crashed) }
					}
				}
			case accessReviews:
				rights, _ := s.rights() // NotApplicable of OOOI-ACC-001 reports the error
				for _, right := range rights {
					reviews[right] = true
				}
			}
		})
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
	for q, pod := range pages {
		group.Go(func() error {
			a := getPage(groupCtx, clients, pod, q.page)
			g.lock.Lock()
			defer g.lock.Unlock()
			g.facts.answers[q] = a
			return ctx.Err()
		})
	}
	for key, get := range logs {
		group.Go(func() error {
			l := get(groupCtx)
			g.lock.Lock()
			defer g.lock.Unlock()
			g.facts.logs[key] = l
			return ctx.Err()
		})
	}
	for right := range reviews {
		group.Go(func() error {
			r := review(groupCtx, clients, right)
			g.lock.Lock()
			defer g.lock.Unlock()
			g.facts.reviews[right] = r
			return ctx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("querying the HTTP endpoints of oooi's pods and reviewing the rights of their ServiceAccounts: %w", err)
	}
	return nil
}

// ourCRDs returns the names of the CRDs that checks read.
func ourCRDs() []string {
	return append(operatorCRDs(), "infras."+v1alpha1.GroupName, "proxyservers."+v1alpha1.GroupName)
}

// operatorCRDs returns the names of the CRDs that only the earlier operator has.
func operatorCRDs() []string {
	return []string{"dhcpservers." + v1alpha1.GroupName, "dnsservers." + v1alpha1.GroupName}
}

// collection collects objects into facts, each place once.
type collection struct {
	client client.Client
	facts  *Facts
	done   map[place]bool
	// controlPlanes are the namespaces of hosted control planes, as far as they are known.
	controlPlanes map[string]bool
	lock          sync.Mutex
}

// configMapsIn returns the names of the ConfigMaps in a namespace that checks read: those with the Corefile of the
// cluster's DNS and with the configuration of Multus, and in the namespace of a control plane the one with its CA.
func (g *collection) configMapsIn(namespace string) []string {
	var names []string
	if g.controlPlanes[namespace] {
		names = append(names, rootCA)
	}
	for _, c := range slices.Concat([]types.NamespacedName{coreConfig, operatorConfig}, read.MultusConfigs) {
		if c.Namespace == namespace {
			names = append(names, c.Name)
		}
	}
	return names
}

// hostedPlaces returns the places of the Infras' HostedClusters.
func (g *collection) hostedPlaces() []place {
	places := []place{{hostedClusters, ""}}
	for _, u := range g.facts.list(infras, "") {
		if infra, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra); ok {
			for _, namespace := range hostedNamespaces(infra) {
				places = append(places, place{hostedClusters, namespace})
			}
		}
	}
	return places
}

// networks returns the networks of all Infras and standalone ProxyServers, as "namespace/name".
func (g *collection) networks() map[string]bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	named := map[string]bool{}
	for _, u := range g.facts.list(infras, "") {
		if infra, ok := objects.Decode[v1alpha1.Infra](u).(*v1alpha1.Infra); ok {
			named[infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace).String()] = true
		}
	}
	for _, u := range g.facts.list(proxyServers, "") {
		if p, ok := objects.Decode[v1alpha1.ProxyServer](u).(*v1alpha1.ProxyServer); ok && p.Spec.InfraRef == nil {
			named[p.Spec.NetworkConfig.NetworkAttachment(p.Namespace).String()] = true
		}
	}
	return named
}

// collect reads places concurrently. It skips places that were read before, and those of a kind that was read in
// all namespaces. It fails only if ctx has ended.
func (g *collection) collect(ctx context.Context, places ...place) error {
	if g.done == nil {
		g.done = map[place]bool{}
	}
	var pending []place
	for _, p := range places {
		if !g.done[p] && (!g.done[place{p.kind, ""}] || g.facts.unreadReason(p.kind, "") != "") {
			g.done[p] = true
			pending = append(pending, p)
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrent)
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
	var err error
	switch p.kind {
	case crds: // other CRDs are large, and no check reads them
		err = g.named(ctx, p, take, ourCRDs()...)
	case namespaces: // others are unrelated
		err = g.named(ctx, p, take, p.namespace)
	case clusterDNS, clusterIngress:
		err = g.named(ctx, p, take, "cluster")
	case constraints: // whether they are served decides, and no object is read
		if _, err = g.client.RESTMapper().RESTMapping(p.kind.GroupKind(), p.kind.Version); meta.IsNoMatchError(err) {
			err = read.ErrNotServed
		}
	case configMaps: // other ConfigMaps may contain secrets
		if err = g.named(ctx, p, take, g.configMapsIn(p.namespace)...); err == nil {
			err = g.list(ctx, p, take, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy})
		}
	case podEvents:
		if err = g.list(ctx, p, take, client.MatchingFields{"reason": "FailedCreate", "involvedObject.kind": statefulSets.Kind}); err == nil {
			err = g.list(ctx, p, func(u *unstructured.Unstructured) {
				path, _, _ := unstructured.NestedString(u.Object, "involvedObject", "fieldPath")
				name, _, _ := unstructured.NestedString(u.Object, "involvedObject", "name")
				reason, _, _ := unstructured.NestedString(u.Object, "reason")
				message, _, _ := unstructured.NestedString(u.Object, "message")
				if reason == unhealthy && slices.Contains(ourContainers, containerOf(path)) || (slices.Contains(startReasons, reason) || isPullEvent(reason, message)) && ownPodName.MatchString(name) {
					take(u)
				}
			}, client.MatchingFields{"type": corev1.EventTypeWarning, "involvedObject.kind": pods.Kind})
		}
	case leaseObjects: // other Leases are not DHCP's or control's
		if p.namespace == render.SystemNamespace {
			err = g.list(ctx, p, take, client.MatchingFields{"metadata.name": render.ControlName})
		} else {
			err = g.list(ctx, p, take, client.HasLabels{leases.PoolLabel})
		}
	case pods: // other pods may have free text in their status
		if err = g.list(ctx, p, take, client.MatchingLabels{labelPartOf: partOf}); err == nil {
			err = g.list(ctx, p, take, client.HasLabels{labelCreatedBy}) // of VMs
		}
	case attachments: // other networks may have secrets in their configuration
		named := g.networks()
		err = g.list(ctx, p, func(u *unstructured.Unstructured) {
			if !named[u.GetNamespace()+"/"+u.GetName()] && u.GetLabels()[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy {
				config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
				u.Object["spec"] = map[string]any{"config": cni.Reduce(config)}
			}
			take(u)
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

// collectUnlabelled reads rendered objects that lost the label by which objects of their kind are selected. Errors are
// not recorded: their place was read. It fails only if ctx has ended.
func (g *collection) collectUnlabelled(ctx context.Context, sites []*Site) error {
	for _, s := range sites {
		rendered, _ := s.rendered() // OOOI-INF-002 reports the error
		for _, want := range rendered {
			kind := want.GroupVersionKind()
			if kind != configMaps && kind != attachments || g.facts.deployed[keyOf(want)] != nil {
				continue
			}
			_ = g.list(ctx, place{kind, want.GetNamespace()}, g.facts.add, client.MatchingFields{"metadata.name": want.GetName()})
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("reading objects from the cluster: %w", err)
			}
		}
	}
	return nil
}

func (g *collection) list(ctx context.Context, p place, take func(*unstructured.Unstructured), more ...client.ListOption) error {
	r := &read.Reader{Client: g.client}
	return r.In(ctx, p.kind, p.namespace, take, more...) //nolint:wrapcheck // error of an internal package
}

// named reads objects by name and ignores those that do not exist. It returns read.ErrNotServed if the API
// server does not serve the kind.
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
