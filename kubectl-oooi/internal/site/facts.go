package site

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
)

// Facts are what was read at the time Taken. After Collect or Load has returned, they do not change, and are safe for
// concurrent use.
type Facts struct {
	Taken time.Time
	// Added has data that commands add before Save, by the name of its file in the bundle.
	Added map[string][]byte

	objects map[Kind][]*unstructured.Unstructured
	// unread is why a kind was not read in a namespace, or in all namespaces ("").
	unread map[place]string
	// unserved are the kinds that the API server does not serve.
	unserved map[Kind]bool
	answers  map[answerKey]*Answer
	logs     map[logKey]*Log
	// saved is set if Save wrote the facts.
	saved bool

	lock     sync.Mutex
	networks cni.Networks                  // see computed
	snapshot *model.Snapshot               // see computed; nil if objects have changed since
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
		Taken: taken, Added: map[string][]byte{}, objects: map[Kind][]*unstructured.Unstructured{}, unread: map[place]string{},
		unserved: map[Kind]bool{}, answers: map[answerKey]*Answer{}, logs: map[logKey]*Log{}, decoded: map[typedObject]decodedObject{},
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

// Served reports whether the API server serves a kind.
func (f *Facts) Served(kind Kind) bool { return !f.unserved[kind] }

// Unread returns why the objects of a kind in a namespace were not read; empty if they were.
func (f *Facts) Unread(kind Kind, namespace string) string { return f.unread[place{kind, namespace}] }

// computed returns the networks of the NetworkAttachmentDefinitions, and the snapshot that the model builds from all objects.
func (f *Facts) computed() (cni.Networks, *model.Snapshot) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.snapshot == nil {
		f.networks, f.snapshot = cni.Networks{}, snapshotOf(f, nil)
		for _, u := range f.List(NADs, "") {
			read.AddNetwork(f.networks, u)
		}
	}
	return f.networks, f.snapshot
}

// management returns the domains of the management cluster.
func (f *Facts) management() []string {
	return setup.ManagementDomains(slices.Concat(f.List(ClusterDNS, ""), f.List(ClusterIngress, "")))
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

// Names returns the Infras, and then the ProxyServers without an Infra, with a namespace and name as "namespace/name", each
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
