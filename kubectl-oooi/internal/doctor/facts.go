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

// Facts are what was read, at one time. They are not changed once they are complete, and may be
// read by any number of goroutines.
type Facts struct {
	Taken   time.Time
	objects map[Kind][]*unstructured.Unstructured
	// unread says why a kind was not read in a namespace, "" for all.
	unread map[place]string
	// unserved are kinds that the API server does not know.
	unserved map[Kind]bool
	// answers are what pods have said.
	answers map[question]*Answer
	// reviews are what the API server says of rights.
	reviews map[Right]*Review
	// probes are what was found from the VLANs of Infras, "namespace/name".
	probes map[string]*Probe

	lock     sync.Mutex
	snapshot *model.Snapshot       // of the objects so far
	decoded  map[typedObject]typed // by decodeOnce
}

// typedObject is an object as a type.
type typedObject struct {
	of *unstructured.Unstructured
	as reflect.Type
}

// typed is what came of decoding it.
type typed struct {
	value any
	err   error
}

type place struct {
	kind      Kind
	namespace string
}

// NewFacts are none yet.
func NewFacts(taken time.Time) *Facts {
	return &Facts{Taken: taken, objects: map[Kind][]*unstructured.Unstructured{}, unread: map[place]string{}, unserved: map[Kind]bool{}, answers: map[question]*Answer{}, reviews: map[Right]*Review{}, probes: map[string]*Probe{}, decoded: map[typedObject]typed{}}
}

// add adds what is kept of an object.
func (f *Facts) add(u *unstructured.Unstructured) {
	if u = keep(u); u == nil {
		return
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.snapshot = nil
	kind := u.GroupVersionKind()
	at, found := slices.BinarySearchFunc(f.objects[kind], u, compare)
	if !found {
		f.objects[kind] = slices.Insert(f.objects[kind], at, u)
	}
}

func compare(a, b *unstructured.Unstructured) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// model is what names and routes come to by all objects.
func (f *Facts) model() *model.Snapshot {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.snapshot == nil {
		f.snapshot = snapshotOf(f)
	}
	return f.snapshot
}

// list are the objects of a kind in a namespace, in all with "", by name.
func (f *Facts) list(kind Kind, namespace string) []*unstructured.Unstructured {
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

// decodeOnce is decode for an object of the facts, which many checks look at. Nobody changes what
// comes of it.
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

// why says why objects of a kind in a namespace are not known; empty where they are.
func (f *Facts) why(kind Kind, namespace string) string {
	return f.unread[place{kind, namespace}]
}
