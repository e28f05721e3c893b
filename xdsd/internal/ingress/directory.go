package ingress

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/selector"
)

// directory knows the Services by their labels, and which VirtualIngress a Service matters to.
// Both are found by one pair of a label's key and value in a namespace, the one that the fewest
// share. Its methods may be called concurrently.
type directory struct {
	mu       sync.RWMutex
	services map[types.NamespacedName]*corev1.Service
	byPair   map[pair]map[types.NamespacedName]*corev1.Service
	askers   map[types.NamespacedName]*asker
	asked    map[pair]map[types.NamespacedName]bool                 // VirtualIngresses, by a pair of each source
	making   map[generated]map[types.NamespacedName]bool            // VirtualIngresses, by what they make
	mirrored map[types.NamespacedName]map[types.NamespacedName]bool // VirtualIngresses, by the Service whose endpoints they mirror
	consents map[string]string                                      // annotations of namespaces
	claims   map[types.NamespacedName]*claim
	byHost   map[string]map[types.NamespacedName]*claim
}

// pair is a label in a namespace; without a key, a name.
type pair struct{ namespace, key, value string }

// generated is an object that a VirtualIngress makes.
type generated struct {
	kind string
	key  types.NamespacedName
}

// asker is what the directory knows of a VirtualIngress.
type asker struct {
	sources  []source
	pairs    []pair // of each source
	makes    []generated
	mirrored []types.NamespacedName
}

// claim are the hosts of a VirtualIngress.
type claim struct {
	hosts   []string // each once, in the order of the spec
	class   string   // of the Ingress; empty for the cluster's default one, which is not known here
	created time.Time
}

// claimOf is what a VirtualIngress claims.
func claimOf(v *v1alpha1.VirtualIngress) *claim {
	c := &claim{created: v.CreationTimestamp.Time, class: v.Annotations[annotationIngressClass]}
	if v.Spec.IngressClassName != nil {
		c.class = *v.Spec.IngressClassName
	}
	for i := range v.Spec.Rules {
		if host := v.Spec.Rules[i].Host; host != "" && !slices.Contains(c.hosts, host) {
			c.hosts = append(c.hosts, host)
		}
	}
	return c
}

// annotationIngressClass names the class where older Ingress controllers look for it.
const annotationIngressClass = "kubernetes.io/ingress.class"

func newDirectory() *directory {
	return &directory{
		services: map[types.NamespacedName]*corev1.Service{}, byPair: map[pair]map[types.NamespacedName]*corev1.Service{},
		askers: map[types.NamespacedName]*asker{}, asked: map[pair]map[types.NamespacedName]bool{},
		making:   map[generated]map[types.NamespacedName]bool{},
		mirrored: map[types.NamespacedName]map[types.NamespacedName]bool{}, consents: map[string]string{},
		claims: map[types.NamespacedName]*claim{}, byHost: map[string]map[types.NamespacedName]*claim{},
	}
}

func keyOf(object interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// put files a thing under a key of a map of maps.
func put[K, L comparable, V any](m map[K]map[L]V, key K, inner L, value V) {
	if m[key] == nil {
		m[key] = map[L]V{}
	}
	m[key][inner] = value
}

// drop takes it away again, and the inner map with the last one.
func drop[K, L comparable, V any](m map[K]map[L]V, key K, inner L) {
	delete(m[key], inner)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// setService takes in a Service as it is now, nil for none, and returns the VirtualIngresses to
// which the difference matters: those that ask for the labels it has or had.
func (d *directory) setService(key types.NamespacedName, now *corev1.Service) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.services[key]
	if was != nil && now != nil && sameService(was, now) {
		d.services[key] = now // its owner may be another one
		for label, value := range now.Labels {
			put(d.byPair, pair{key.Namespace, label, value}, key, now)
		}
		return nil
	}
	found := map[types.NamespacedName]bool{}
	if was != nil {
		for label, value := range was.Labels {
			drop(d.byPair, pair{key.Namespace, label, value}, key)
		}
		d.findAskers(key, was.Labels, found)
	}
	if now == nil {
		delete(d.services, key)
	} else {
		d.services[key] = now
		for label, value := range now.Labels {
			put(d.byPair, pair{key.Namespace, label, value}, key, now)
		}
		d.findAskers(key, now.Labels, found)
	}
	return slices.Collect(maps.Keys(found))
}

// sameService reports whether nothing is different that counts here.
func sameService(a, b *corev1.Service) bool {
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && reflect.DeepEqual(a.Spec, b.Spec)
}

// findAskers adds who asks for such a Service.
func (d *directory) findAskers(key types.NamespacedName, labels map[string]string, found map[types.NamespacedName]bool) {
	look := func(p pair) {
		for v := range d.asked[p] {
			if !found[v] && slices.ContainsFunc(d.askers[v].sources, func(s source) bool { return s.matches(key, labels) }) {
				found[v] = true
			}
		}
	}
	look(pair{namespace: key.Namespace, value: key.Name})
	for label, value := range labels {
		look(pair{key.Namespace, label, value})
	}
}

// setAsker takes in what a VirtualIngress asks for and makes.
func (d *directory) setAsker(v types.NamespacedName, sources []source, makes []generated) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var mirrored []types.NamespacedName
	if was := d.askers[v]; was != nil {
		mirrored = was.mirrored
	}
	d.removeAsker(v)
	a := &asker{sources: sources, makes: makes, mirrored: mirrored}
	for _, s := range sources {
		p := pair{namespace: s.namespace, value: s.name}
		if s.name == "" {
			p = rarest(d.asked, s)
		}
		a.pairs = append(a.pairs, p)
		put(d.asked, p, v, true)
	}
	for _, g := range makes {
		put(d.making, g, v, true)
	}
	for _, s := range mirrored {
		put(d.mirrored, s, v, true)
	}
	d.askers[v] = a
}

// rarest is the pair of a source's labels that the fewest are filed under.
func rarest[V any](by map[pair]map[types.NamespacedName]V, s source) pair {
	var best pair
	for label, value := range s.labels {
		p := pair{s.namespace, label, value}
		if best == (pair{}) || len(by[p]) < len(by[best]) {
			best = p
		}
	}
	return best
}

// forget takes away what is known of a VirtualIngress.
func (d *directory) forget(v types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removeAsker(v)
}

// removeAsker needs d.mu held.
func (d *directory) removeAsker(v types.NamespacedName) {
	a := d.askers[v]
	if a == nil {
		return
	}
	for _, p := range a.pairs {
		drop(d.asked, p, v)
	}
	for _, g := range a.makes {
		drop(d.making, g, v)
	}
	for _, s := range a.mirrored {
		drop(d.mirrored, s, v)
	}
	delete(d.askers, v)
}

// setClaim takes in what a VirtualIngress claims, nil for nothing any more, and returns those of other
// namespaces to which the difference may matter.
func (d *directory) setClaim(v types.NamespacedName, now *claim) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.claims[v]
	if reflect.DeepEqual(was, now) {
		return nil
	}
	rivals := map[types.NamespacedName]bool{}
	find := func(hosts []string) {
		for _, host := range hosts {
			for rival := range d.byHost[host] {
				if rival.Namespace != v.Namespace {
					rivals[rival] = true
				}
			}
		}
	}
	if was != nil {
		for _, host := range was.hosts {
			drop(d.byHost, host, v)
		}
		find(was.hosts)
		delete(d.claims, v)
	}
	if now != nil {
		for _, host := range now.hosts {
			put(d.byHost, host, v, now)
		}
		find(now.hosts)
		d.claims[v] = now
	}
	return slices.Collect(maps.Keys(rivals))
}

// claimedOf are the hosts of a VirtualIngress that one of another namespace has.
func (d *directory) claimedOf(v types.NamespacedName) []claimed {
	d.mu.RLock()
	defer d.mu.RUnlock()
	mine := d.claims[v]
	if mine == nil {
		return nil
	}
	var list []claimed
	for _, host := range mine.hosts {
		if holder := holderOf(d.byHost[host], v); holder != v {
			list = append(list, claimed{host, holder})
		}
	}
	return list
}

// holderOf returns the VirtualIngress that keeps one of those that claim a host from having it; that
// one itself for none. The older one has it, of two that are as old the first by name. Those of one
// namespace share it, and those of two classes do not get in each other's way.
func holderOf(claims map[types.NamespacedName]*claim, of types.NamespacedName) types.NamespacedName {
	type one struct{ namespace, class string }
	holders := map[one]types.NamespacedName{}
	oldest := slices.SortedFunc(maps.Keys(claims), func(a, b types.NamespacedName) int {
		return cmp.Or(claims[a].created.Compare(claims[b].created), strings.Compare(a.String(), b.String()))
	})
	for _, v := range oldest {
		class, holder := claims[v].class, v
		for h, by := range holders {
			if h.namespace != v.Namespace && (h.class == class || h.class == "" || class == "") && (holder == v || by.String() < holder.String()) {
				holder = by
			}
		}
		if v == of {
			return holder
		}
		if o := (one{v.Namespace, class}); holder == v && holders[o] == (types.NamespacedName{}) {
			holders[o] = v
		}
	}
	return of
}

// setMirrored takes in whose endpoints a VirtualIngress mirrors.
func (d *directory) setMirrored(v types.NamespacedName, services []types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.askers[v]
	if a == nil {
		return
	}
	for _, s := range a.mirrored {
		drop(d.mirrored, s, v)
	}
	a.mirrored = services
	for _, s := range services {
		put(d.mirrored, s, v, true)
	}
}

// mirrorsOf are the VirtualIngresses that mirror a Service's endpoints.
func (d *directory) mirrorsOf(service types.NamespacedName) []types.NamespacedName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.mirrored[service]))
}

// makersOf are the VirtualIngresses that make an object of this kind and name, or would.
func (d *directory) makersOf(kind string, key types.NamespacedName) []types.NamespacedName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.making[generated{kind, key}]))
}

// setConsent takes in a namespace's annotation, and returns the VirtualIngresses of other
// namespaces that ask for Services there, if it is another one.
func (d *directory) setConsent(namespace, annotation string) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.consents[namespace] == annotation {
		return nil
	}
	delete(d.consents, namespace)
	if annotation != "" {
		d.consents[namespace] = annotation
	}
	var list []types.NamespacedName
	for v, a := range d.askers {
		if v.Namespace != namespace && slices.ContainsFunc(a.sources, func(s source) bool { return s.namespace == namespace }) {
			list = append(list, v)
		}
	}
	return list
}

// allows reports whether a namespace lets another one have aliases of its Services.
func (d *directory) allows(namespace, other string) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for name := range strings.SplitSeq(d.consents[namespace], ",") {
		if name = strings.TrimSpace(name); name == "*" || name != "" && name == other {
			return true
		}
	}
	return false
}

// find returns the Services that a source may mean, in no order. What is generated here is none
// of them, nor is what is being deleted.
func (d *directory) find(s source) []*corev1.Service {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if s.name != "" {
		if one := d.services[types.NamespacedName{Namespace: s.namespace, Name: s.name}]; one != nil && eligible(one) {
			return []*corev1.Service{one}
		}
		return nil
	}
	var list []*corev1.Service
	for _, one := range d.byPair[rarest(d.byPair, s)] {
		if selector.Matches(one.Labels, s.labels) && eligible(one) {
			list = append(list, one)
		}
	}
	return list
}

func eligible(s *corev1.Service) bool { return s.DeletionTimestamp == nil && !isGenerated(s) }

// service returns a Service, generated or not; nil for none. It must not be changed.
func (d *directory) service(key types.NamespacedName) *corev1.Service {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.services[key]
}

// size is how many Services there are.
func (d *directory) size() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.services)
}
