package ingress

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/internal/selector"
)

// directory finds Services by labels, and the VirtualIngresses that a Service affects. Both are indexed by one
// label in a namespace. Of several labels the one with the fewest entries is used. It is safe for concurrent use.
type directory struct {
	mu            sync.RWMutex
	services      map[types.NamespacedName]*corev1.Service
	servicesByKey map[indexKey]map[types.NamespacedName]*corev1.Service
	entries       map[types.NamespacedName]*entry
	bySource      map[indexKey]map[types.NamespacedName]bool             // VirtualIngresses by one index key of each source
	byGenerated   map[generated]map[types.NamespacedName]bool            // VirtualIngresses by generated object
	mirrored      map[types.NamespacedName]map[types.NamespacedName]bool // VirtualIngresses by the Service whose endpoints they mirror
	consents      map[string]string                                      // annotation by namespace
	claims        map[types.NamespacedName]*claim
	byHost        map[string]map[types.NamespacedName]*claim
}

// indexKey is a label in a namespace. If key is empty, value is the name of a Service.
type indexKey struct{ namespace, key, value string }

// generated identifies an object that is generated from a VirtualIngress.
type generated struct {
	kind string
	key  types.NamespacedName
}

// entry is the directory's entry of a VirtualIngress.
type entry struct {
	sources   []source
	keys      []indexKey // one of each source
	generated []generated
	mirrored  []types.NamespacedName
}

func newDirectory() *directory {
	return &directory{
		services: map[types.NamespacedName]*corev1.Service{}, servicesByKey: map[indexKey]map[types.NamespacedName]*corev1.Service{},
		entries: map[types.NamespacedName]*entry{}, bySource: map[indexKey]map[types.NamespacedName]bool{},
		byGenerated: map[generated]map[types.NamespacedName]bool{},
		mirrored:    map[types.NamespacedName]map[types.NamespacedName]bool{}, consents: map[string]string{},
		claims: map[types.NamespacedName]*claim{}, byHost: map[string]map[types.NamespacedName]*claim{},
	}
}

func keyOf(object interface {
	GetNamespace() string
	GetName() string
}) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// put sets m[key][inner] and creates the inner map if necessary.
func put[K, L comparable, V any](m map[K]map[L]V, key K, inner L, value V) {
	if m[key] == nil {
		m[key] = map[L]V{}
	}
	m[key][inner] = value
}

// drop deletes m[key][inner], and the inner map if it is empty.
func drop[K, L comparable, V any](m map[K]map[L]V, key K, inner L) {
	delete(m[key], inner)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// setService stores a Service, or deletes it if current is nil. It returns the VirtualIngresses that select the
// Service before or after the change, or none if no relevant field has changed.
func (d *directory) setService(key types.NamespacedName, current *corev1.Service) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.services[key]
	if old != nil && current != nil && sameService(old, current) {
		d.services[key] = current // other fields may have changed, such as the owner
		for label, value := range current.Labels {
			put(d.servicesByKey, indexKey{key.Namespace, label, value}, key, current)
		}
		return nil
	}
	found := map[types.NamespacedName]bool{}
	if old != nil {
		for label, value := range old.Labels {
			drop(d.servicesByKey, indexKey{key.Namespace, label, value}, key)
		}
		d.addSelecting(key, old.Labels, found)
	}
	if current == nil {
		delete(d.services, key)
	} else {
		d.services[key] = current
		for label, value := range current.Labels {
			put(d.servicesByKey, indexKey{key.Namespace, label, value}, key, current)
		}
		d.addSelecting(key, current.Labels, found)
	}
	return slices.Collect(maps.Keys(found))
}

// sameService reports whether all relevant fields of two versions of a Service are equal.
func sameService(a, b *corev1.Service) bool {
	return a.UID == b.UID && maps.Equal(a.Labels, b.Labels) && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && reflect.DeepEqual(a.Spec, b.Spec)
}

// addSelecting adds the VirtualIngresses that select a Service with these labels to found.
func (d *directory) addSelecting(key types.NamespacedName, labels map[string]string, found map[types.NamespacedName]bool) {
	add := func(p indexKey) {
		for v := range d.bySource[p] {
			if !found[v] && slices.ContainsFunc(d.entries[v].sources, func(s source) bool { return s.matches(key, labels) }) {
				found[v] = true
			}
		}
	}
	add(indexKey{namespace: key.Namespace, value: key.Name})
	for label, value := range labels {
		add(indexKey{key.Namespace, label, value})
	}
}

// setEntry stores the sources and the generated objects of a VirtualIngress.
func (d *directory) setEntry(v types.NamespacedName, sources []source, generated []generated) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var mirrored []types.NamespacedName
	if old := d.entries[v]; old != nil {
		mirrored = old.mirrored
	}
	d.removeEntry(v)
	e := &entry{sources: sources, generated: generated, mirrored: mirrored}
	for _, s := range sources {
		p := indexKey{namespace: s.namespace, value: s.name}
		if s.name == "" {
			p = mostSelective(d.bySource, s)
		}
		e.keys = append(e.keys, p)
		put(d.bySource, p, v, true)
	}
	for _, g := range generated {
		put(d.byGenerated, g, v, true)
	}
	for _, s := range mirrored {
		put(d.mirrored, s, v, true)
	}
	d.entries[v] = e
}

// mostSelective returns the index key of the source's label that has the fewest entries.
func mostSelective[V any](by map[indexKey]map[types.NamespacedName]V, s source) indexKey {
	var best indexKey
	for label, value := range s.labels {
		p := indexKey{s.namespace, label, value}
		if best == (indexKey{}) || len(by[p]) < len(by[best]) {
			best = p
		}
	}
	return best
}

// forget removes a VirtualIngress.
func (d *directory) forget(v types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removeEntry(v)
}

// removeEntry requires d.mu.
func (d *directory) removeEntry(v types.NamespacedName) {
	e := d.entries[v]
	if e == nil {
		return
	}
	for _, p := range e.keys {
		drop(d.bySource, p, v)
	}
	for _, g := range e.generated {
		drop(d.byGenerated, g, v)
	}
	for _, s := range e.mirrored {
		drop(d.mirrored, s, v)
	}
	delete(d.entries, v)
}

// setMirrored stores the Services whose endpoints a VirtualIngress mirrors.
func (d *directory) setMirrored(v types.NamespacedName, services []types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.entries[v]
	if e == nil {
		return
	}
	for _, s := range e.mirrored {
		drop(d.mirrored, s, v)
	}
	e.mirrored = services
	for _, s := range services {
		put(d.mirrored, s, v, true)
	}
}

// mirroringOf returns the VirtualIngresses that mirror the endpoints of a Service.
func (d *directory) mirroringOf(service types.NamespacedName) []types.NamespacedName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.mirrored[service]))
}

// generatorsOf returns the VirtualIngresses that generate an object of this kind and name, whether it exists or
// not.
func (d *directory) generatorsOf(kind string, key types.NamespacedName) []types.NamespacedName {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return slices.Collect(maps.Keys(d.byGenerated[generated{kind, key}]))
}

// setConsent stores the consent annotation of a namespace. If it has changed, setConsent returns the
// VirtualIngresses of other namespaces that select Services in this one.
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
	for v, e := range d.entries {
		if v.Namespace != namespace && slices.ContainsFunc(e.sources, func(s source) bool { return s.namespace == namespace }) {
			list = append(list, v)
		}
	}
	return list
}

// allows reports whether a namespace permits aliases of its Services in the namespace other.
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

// find returns the Services that a source selects, in no particular order, without generated ones and those that
// are being deleted.
func (d *directory) find(s source) []*corev1.Service {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if s.name != "" {
		if service := d.services[types.NamespacedName{Namespace: s.namespace, Name: s.name}]; service != nil && eligible(service) {
			return []*corev1.Service{service}
		}
		return nil
	}
	var list []*corev1.Service
	for _, service := range d.servicesByKey[mostSelective(d.servicesByKey, s)] {
		if selector.Matches(service.Labels, s.labels) && eligible(service) {
			list = append(list, service)
		}
	}
	return list
}

func eligible(s *corev1.Service) bool { return s.DeletionTimestamp == nil && !isGenerated(s) }

// service returns a Service, generated or not, or nil. Callers must not modify it.
func (d *directory) service(key types.NamespacedName) *corev1.Service {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.services[key]
}

// size returns the number of Services.
func (d *directory) size() int {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.services)
}
