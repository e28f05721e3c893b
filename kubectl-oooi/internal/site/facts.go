package site

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// Facts is the data that was read at the time Taken. Only Collector.Extend changes it after Collect or Load has returned. Otherwise, it
// is safe for concurrent use.
type Facts struct {
	Taken time.Time
	// Added has data that commands add before Save, by the name of its file in the bundle.
	Added map[string][]byte

	objects map[Kind][]*unstructured.Unstructured
	// attempted are the places that Collector has read. unread is why a kind was not read in a namespace, or in all namespaces ("").
	attempted map[place]bool
	unread    map[place]error
	// unserved are the kinds that the API server does not serve.
	unserved  map[Kind]bool
	responses map[responseKey]*Response
	logs      map[logKey]*Log
	// saved is set if Save wrote the facts.
	saved bool

	lock     sync.Mutex
	networks cni.Networks                  // see Model
	snapshot *model.Snapshot               // see Model; nil if objects have changed since
	decoded  map[typedObject]decodedObject // see Decode
}

// typedObject is the key of a decoded object.
type typedObject struct {
	of *unstructured.Unstructured
	as reflect.Type
}

// decodedObject is a decoded object, or the error of decoding it.
type decodedObject struct {
	value any
	err   error
}

// NewFacts returns facts without data, as of the given time.
func NewFacts(taken time.Time) *Facts {
	return &Facts{
		Taken: taken, Added: map[string][]byte{}, objects: map[Kind][]*unstructured.Unstructured{}, attempted: map[place]bool{}, unread: map[place]error{},
		unserved: map[Kind]bool{}, responses: map[responseKey]*Response{}, logs: map[logKey]*Log{}, decoded: map[typedObject]decodedObject{},
	}
}

// Add adds an object without secrets. It ignores Secrets, and objects that were added before.
func (f *Facts) Add(u *unstructured.Unstructured) {
	if u.GetKind() == "Secret" {
		return
	}
	redact(u)
	f.lock.Lock()
	defer f.lock.Unlock()
	f.snapshot = nil
	kind := u.GroupVersionKind()
	if at, found := slices.BinarySearchFunc(f.objects[kind], u, compareNames); !found {
		f.objects[kind] = slices.Insert(f.objects[kind], at, u)
	}
}

// With returns a copy of the facts in which objects replace objects of the same kind and name. It does not change the objects, which may
// contain secrets.
func (f *Facts) With(objects ...*unstructured.Unstructured) *Facts {
	c := NewFacts(f.Taken)
	c.Added, c.responses, c.logs, c.saved = f.Added, f.responses, f.logs, f.saved
	c.attempted, c.unread, c.unserved = maps.Clone(f.attempted), maps.Clone(f.unread), maps.Clone(f.unserved)
	for kind, list := range f.objects {
		c.objects[kind] = slices.Clone(list)
	}
	for _, u := range objects {
		kind := u.GroupVersionKind()
		at, found := slices.BinarySearchFunc(c.objects[kind], u, compareNames)
		if found {
			c.objects[kind][at] = u
		} else {
			c.objects[kind] = slices.Insert(c.objects[kind], at, u)
		}
	}
	return c
}

func compareNames(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// List returns the objects of a kind in a namespace, or with "" in all, sorted by namespace and name.
func (f *Facts) List(kind Kind, namespace string) []*unstructured.Unstructured {
	if namespace == "" {
		return f.objects[kind]
	}
	var list []*unstructured.Unstructured
	for _, u := range f.objects[kind] {
		if u.GetNamespace() == namespace {
			list = append(list, u)
		}
	}
	return list
}

// Get returns an object; nil if the facts do not contain it. The namespace of cluster-scoped objects is empty.
func (f *Facts) Get(kind Kind, namespace, name string) *unstructured.Unstructured {
	key := &unstructured.Unstructured{}
	key.SetNamespace(namespace)
	key.SetName(name)
	if at, found := slices.BinarySearchFunc(f.objects[kind], key, compareNames); found {
		return f.objects[kind][at]
	}
	return nil
}

// Served reports whether the API server serves a kind.
func (f *Facts) Served(kind Kind) bool { return !f.unserved[kind] }

// Unread returns why the objects of a kind in a namespace were not read; empty if they were read.
func (f *Facts) Unread(kind Kind, namespace string) string {
	if err := f.Err(kind, namespace); err != nil {
		return err.Error()
	}
	return ""
}

// Err returns the error with which reading the objects of a kind in a namespace failed; nil if they were read.
func (f *Facts) Err(kind Kind, namespace string) error { return f.unread[place{kind, namespace}] }

// UnreadEverywhere returns why kinds were not read in all namespaces, sorted; nil if all were.
func (f *Facts) UnreadEverywhere() []string {
	var reasons []string
	for p, err := range f.unread {
		if p.namespace == "" {
			reasons = append(reasons, err.Error())
		}
	}
	slices.Sort(reasons)
	return reasons
}

// Failed returns the errors because of which data is missing, other than missing permissions; nil if there are none.
func (f *Facts) Failed() error {
	var errs []error
	for _, err := range f.unread {
		if !apierrors.IsForbidden(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Model returns the networks of the NetworkAttachmentDefinitions, and the snapshot that the model builds from all objects.
func (f *Facts) Model() (cni.Networks, *model.Snapshot) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.snapshot == nil {
		f.networks, f.snapshot = cni.Networks{}, snapshotOf(f, model.Scope{}, nil)
		for _, u := range f.List(NADs, "") {
			if config, _, err := unstructured.NestedString(u.Object, "spec", "config"); err == nil {
				f.networks[u.GetNamespace()+"/"+u.GetName()] = cni.Identity(config)
			}
		}
	}
	return f.networks, f.snapshot
}

// Infras returns the Infras that can be decoded, without defaults, sorted by namespace and name. The caller must not change them.
func (f *Facts) Infras() []*v1alpha1.Infra { return decodable[v1alpha1.Infra](f, Infras) }

// decodable returns the objects of a kind that can be decoded.
func decodable[T any](f *Facts, kind Kind) []*T {
	var list []*T
	for _, u := range f.List(kind, "") {
		if one, err := Decode[T](f, u); err == nil {
			list = append(list, one)
		}
	}
	return list
}

// infraNetworks returns the networks of all Infras and standalone ProxyServers as "namespace/name".
func (f *Facts) infraNetworks() map[string]bool {
	named := map[string]bool{}
	for _, infra := range f.Infras() {
		named[infra.Spec.NetworkConfig.NetworkAttachment(infra.Namespace).String()] = true
	}
	for _, p := range decodable[v1alpha1.ProxyServer](f, ProxyServers) {
		if p.Spec.InfraRef == nil {
			named[p.Spec.NetworkConfig.NetworkAttachment(p.Namespace).String()] = true
		}
	}
	return named
}

// Management returns the domains in an OpenShift management cluster's config.openshift.io objects, sorted; nil on other clusters.
func (f *Facts) Management() []string {
	var domains []string
	for _, u := range slices.Concat(f.List(ClusterDNS, ""), f.List(ClusterIngress, "")) {
		for _, field := range []string{"baseDomain", "domain", "appsDomain"} { // of DNS, and of Ingress
			if domain, _, _ := unstructured.NestedString(u.Object, "spec", field); domain != "" {
				domains = append(domains, domain)
			}
		}
	}
	slices.Sort(domains)
	return slices.Compact(domains)
}

// Decode converts an object of the facts, and caches the result, which the caller must not change.
func Decode[T any](f *Facts, u *unstructured.Unstructured) (*T, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	key := typedObject{u, reflect.TypeFor[T]()}
	t, known := f.decoded[key]
	if !known {
		one := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, one); err != nil {
			t.err = fmt.Errorf("decoding %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
		}
		t.value = one
		f.decoded[key] = t
	}
	value, _ := t.value.(*T)
	return value, t.err
}

// Names returns "namespace/name" of the Infras, and then of the ProxyServers without an Infra, with a namespace and name, each
// sorted; nil if there are none. An empty namespace means all namespaces, and an empty name all names.
func (f *Facts) Names(namespace, name string) []string {
	var names []string
	for _, kind := range []Kind{Infras, ProxyServers} {
		for _, u := range f.List(kind, namespace) {
			key := u.GetNamespace() + "/" + u.GetName()
			if inventory.Owns(u) && (name == "" || u.GetName() == name) && !slices.Contains(names, key) {
				names = append(names, key)
			}
		}
	}
	return names
}
