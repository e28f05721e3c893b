package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
)

// queue is the work queue of a controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// changes returns a source that enqueues the objects whose fingerprint differs between two snapshots, and the object
// that affected returns for a changed Infra or ProxyServer. A fingerprint is a comparable value, by "namespace/name" of
// the object. affected returns "namespace/name", or "" for none.
func changes(indexes *indexCache, fingerprints func(*index) map[string]any, affected func(objects.Object) string) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		var mu sync.Mutex
		before := map[string]any{}
		enqueue := func() {
			mu.Lock()
			defer mu.Unlock()
			x := indexes.current()
			if x == nil {
				return
			}
			now := fingerprints(x)
			for key, value := range now {
				if old, known := before[key]; !known || old != value {
					q.Add(requestOf(key))
				}
			}
			for key := range before {
				if _, still := now[key]; !still {
					q.Add(requestOf(key))
				}
			}
			before = now
		}
		context.AfterFunc(ctx, indexes.store.Subscribe(enqueue))
		context.AfterFunc(ctx, indexes.store.SubscribeObjects(func(o objects.Object) {
			if o != nil {
				if key := affected(o); key != "" {
					q.Add(requestOf(key))
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for key := range before {
				q.Add(requestOf(key))
			}
		}))
		enqueue()
		return nil
	})
}

// itself returns the name of an object if it has type T.
func itself[T client.Object](o objects.Object) string {
	if o, ok := o.(T); ok {
		return client.ObjectKeyFromObject(o).String()
	}
	return ""
}

// itselfOrInfra returns the name of an Infra, or of the Infra that a ProxyServer refers to.
func itselfOrInfra(o objects.Object) string {
	if p, ok := o.(*v1alpha1.ProxyServer); ok && p.Spec.InfraRef != nil {
		return p.Namespace + "/" + p.Spec.InfraRef.Name
	}
	return itself[*v1alpha1.Infra](o)
}

func requestOf(key string) reconcile.Request {
	namespace, name, _ := strings.Cut(key, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// indexCache holds the index of the current snapshot, so that controllers share it.
type indexCache struct {
	store *watch.Store
	last  atomic.Pointer[index]
}

// current returns the index of the current snapshot, or nil before the first one.
func (c *indexCache) current() *index {
	s := c.store.Snapshot()
	if s == nil {
		return nil
	}
	if x := c.last.Load(); x != nil && x.Snapshot == s {
		return x
	}
	x := newIndex(s)
	c.last.Store(x)
	return x
}

// index looks up objects of a snapshot.
type index struct {
	*model.Snapshot

	infras    map[string]*model.Infra
	proxies   map[string]*model.ProxyServer
	proxiesOf map[model.Ref][]string // ProxyServers by their Infra
	problems  map[model.Ref][]model.Problem
	// infraFingerprints computes its result once, because several controllers use it.
	infraFingerprints func() map[string]any
}

func newIndex(s *model.Snapshot) *index {
	x := &index{
		Snapshot: s, infras: make(map[string]*model.Infra, len(s.Infras)),
		proxies: make(map[string]*model.ProxyServer, len(s.ProxyServers)), proxiesOf: map[model.Ref][]string{}, problems: map[model.Ref][]model.Problem{},
	}
	for _, i := range s.Infras {
		x.infras[i.Key()] = i
	}
	for _, p := range s.ProxyServers {
		x.proxies[p.Key()] = p
		if p.Infra != nil {
			x.proxiesOf[*p.Infra] = append(x.proxiesOf[*p.Infra], p.Key())
		}
	}
	for _, p := range s.Problems {
		x.problems[p.Object] = append(x.problems[p.Object], p)
	}
	x.infraFingerprints = sync.OnceValue(x.computeInfraFingerprints)
	return x
}

// infra returns an Infra in the model. It returns nil for nil, and if the snapshot was built from another version of the
// spec: the next snapshot then enqueues the Infra again.
func (x *index) infra(object *v1alpha1.Infra) *model.Infra {
	if object == nil {
		return nil
	}
	i := x.infras[object.Namespace+"/"+object.Name]
	if i == nil || i.UID != object.UID || i.Generation != object.Generation {
		return nil
	}
	return i
}

// proxy returns a ProxyServer in the model, or nil as infra does.
func (x *index) proxy(object *v1alpha1.ProxyServer) *model.ProxyServer {
	p := x.proxies[object.Namespace+"/"+object.Name]
	if p == nil || p.UID != object.UID || p.Generation != object.Generation {
		return nil
	}
	return p
}

// problemsOf returns the problems of an Infra and of its hosted cluster.
func (x *index) problemsOf(i *model.Infra) []model.Problem {
	problems := x.problems[i.Ref]
	if i.Cluster != nil && i.Cluster.Ref != i.Ref {
		problems = append(slices.Clip(problems), x.problems[i.Cluster.Ref]...)
	}
	return problems
}

// proxyFingerprints returns the fingerprints of ProxyServers. Snapshots share objects that have not changed, so
// that a pointer identifies their content.
func proxyFingerprints(x *index) map[string]any {
	all := make(map[string]any, len(x.proxies))
	for key, p := range x.proxies {
		service, address := x.proxyService(p)
		all[key] = [4]any{p, service, address, fmt.Sprint(x.problems[p.Ref])}
	}
	return all
}

// infraFingerprints returns the fingerprints of Infras.
func infraFingerprints(x *index) map[string]any { return x.infraFingerprints() }

// computeInfraFingerprints combines the parts of the model that the status of an Infra depends on.
func (x *index) computeInfraFingerprints() map[string]any {
	all := make(map[string]any, len(x.infras))
	for key, i := range x.infras {
		proxy := ""
		if i.Proxy != nil {
			proxy = fmt.Sprint(*i.Proxy)
		}
		all[key] = [7]any{i.UID, i.Generation, i.Cluster, i.NotChosen, proxy, fmt.Sprint(x.problemsOf(i)), fmt.Sprint(x.proxiesOf[i.Ref])}
	}
	return all
}

// proxyService returns the Service in front of a proxy, as "namespace/name", and its first cluster IP; empty if
// unknown.
func (x *index) proxyService(p *model.ProxyServer) (service, address string) {
	if p.Infra != nil {
		i := x.infras[p.Infra.Key()]
		if i == nil || i.Proxy == nil {
			return "", ""
		}
		if len(i.Proxy.ClusterIPs) > 0 {
			address = i.Proxy.ClusterIPs[0].String()
		}
		return i.Proxy.Service, address
	}
	if addresses := x.ServiceIPs(p.Key()); len(addresses) > 0 {
		return p.Key(), addresses[0].String()
	}
	return "", ""
}
