package doctor

import (
	"cmp"
	"reflect"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/model"
)

// Facts are the data that checks read, as of the time Taken. After Collect, Load and Probe have returned, they
// do not change and are safe for concurrent use.
type Facts struct {
	Taken time.Time
	// Plugin is the version of the plugin that evaluates the facts; empty if it is unknown.
	Plugin  string
	objects map[Kind][]*unstructured.Unstructured
	// deployed are the objects of comparedKinds with all fields, until compare.
	deployed map[objectKey]*unstructured.Unstructured
	// drifts are how the objects of each compared Infra differ from the rendered ones, by "namespace/name".
	drifts map[string][]drift
	// saved is set if Save wrote the facts, and partial if they are files that may lack objects of some kinds.
	saved, partial bool
	// unread is why a kind was not read in a namespace, or in all namespaces ("").
	unread map[place]string
	// unserved are the kinds that the API server does not serve.
	unserved map[Kind]bool
	// answers are the pages of pods.
	answers map[pageKey]*Answer
	// reviews are the access reviews of the rights of our ServiceAccounts.
	reviews map[Right]*Review
	// logs are the logs of our containers that have terminated with an error.
	logs map[logKey]*Log
	// probes are the probes of the Infras' VLANs, by "namespace/name" of the Infra.
	probes map[string]*Probe

	lock     sync.Mutex
	snapshot *model.Snapshot               // built from objects, nil if these have changed since
	decoded  map[typedObject]decodedObject // see decodeOnce
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

type place struct {
	kind      Kind
	namespace string
}

func (p place) String() string {
	if p.namespace == "" {
		return resourceOf(p.kind) + " in all namespaces"
	}
	return resourceOf(p.kind) + " in namespace " + p.namespace
}

// NewFacts returns facts without data, as of the given time.
func NewFacts(taken time.Time) *Facts {
	return &Facts{Taken: taken, objects: map[Kind][]*unstructured.Unstructured{}, deployed: map[objectKey]*unstructured.Unstructured{}, drifts: map[string][]drift{}, unread: map[place]string{}, unserved: map[Kind]bool{}, answers: map[pageKey]*Answer{}, reviews: map[Right]*Review{}, logs: map[logKey]*Log{}, probes: map[string]*Probe{}, decoded: map[typedObject]decodedObject{}}
}

// add adds an object, reduced to the fields that checks read. It ignores kinds that no check reads, and objects
// that were added before.
func (f *Facts) add(u *unstructured.Unstructured) {
	whole := u
	if u = pruneObject(u); u == nil {
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.snapshot = nil
	kind := u.GroupVersionKind()
	if slices.Contains(comparedKinds, kind) && f.deployed[keyOf(whole)] == nil {
		f.deployed[keyOf(whole)] = whole
	}
	at, found := slices.BinarySearchFunc(f.objects[kind], u, compare)
	if !found {
		f.objects[kind] = slices.Insert(f.objects[kind], at, u)
	}
}

func compare(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// model returns the snapshot that the model builds from all objects.
func (f *Facts) model() *model.Snapshot {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.snapshot == nil {
		f.snapshot = snapshotOf(f, nil)
	}
	return f.snapshot
}

// list returns the objects of a kind in a namespace, or with "" in all, sorted by namespace and name. A Namespace is
// in itself.
func (f *Facts) list(kind Kind, namespace string) []*unstructured.Unstructured {
	if namespace == "" {
		return f.objects[kind]
	}
	var list []*unstructured.Unstructured
	for _, u := range f.objects[kind] {
		if u.GetNamespace() == namespace || kind == namespaces && u.GetName() == namespace {
			list = append(list, u)
		}
	}
	return list
}

// decodeOnce decodes an object of the facts and caches the result, since many checks read the same objects. The
// caller must not change the result.
func decodeOnce[T any](f *Facts, u *unstructured.Unstructured) (*T, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	key := typedObject{u, reflect.TypeFor[T]()}
	t, known := f.decoded[key]
	if !known {
		t.value, t.err = decode[T](u)
		f.decoded[key] = t
	}
	value, _ := t.value.(*T)
	return value, t.err
}

// unreadReason returns why the objects of a kind in a namespace were not read, empty if they were.
func (f *Facts) unreadReason(kind Kind, namespace string) string {
	return f.unread[place{kind, namespace}]
}
