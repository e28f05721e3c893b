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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
)

// queue is the work of one controller.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// changesOf has those objects reconciled whose meaning has changed from one snapshot to the
// next. What an object means is a comparable value, by "namespace/name".
func changesOf(known *knowledge, meanings func(*index) map[string]any) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		var mu sync.Mutex
		before := map[string]any{}
		tell := func() {
			mu.Lock()
			defer mu.Unlock()
			x := known.now()
			if x == nil {
				return
			}
			now := meanings(x)
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
		context.AfterFunc(ctx, known.store.Subscribe(tell))
		tell()
		return nil
	})
}

func requestOf(key string) reconcile.Request {
	namespace, name, _ := strings.Cut(key, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// knowledge is the model as it is now, with an index made once for each snapshot.
type knowledge struct {
	store *watch.Store
	last  atomic.Pointer[index]
}

// now returns the present index; nil while nothing is known.
func (k *knowledge) now() *index {
	s := k.store.Snapshot()
	if s == nil {
		return nil
	}
	if x := k.last.Load(); x != nil && x.Snapshot == s {
		return x
	}
	x := indexOf(s)
	k.last.Store(x)
	return x
}

// index finds things in a snapshot.
type index struct {
	*model.Snapshot

	infras   map[string]*model.Infra
	proxies  map[string]*model.ProxyServer
	problems map[model.Ref][]model.Problem
	// What Infras mean is asked for by several controllers.
	infraMeanings func() map[string]any
}

func indexOf(s *model.Snapshot) *index {
	x := &index{
		Snapshot: s, infras: make(map[string]*model.Infra, len(s.Infras)),
		proxies: make(map[string]*model.ProxyServer, len(s.ProxyServers)), problems: map[model.Ref][]model.Problem{},
	}
	for _, i := range s.Infras {
		x.infras[i.Key()] = i
	}
	for _, p := range s.ProxyServers {
		x.proxies[p.Key()] = p
	}
	for _, p := range s.Problems {
		x.problems[p.Object] = append(x.problems[p.Object], p)
	}
	x.infraMeanings = sync.OnceValue(x.meaningsOfInfras)
	return x
}

// problemsOf are an Infra's, and those of the hosted cluster that it serves.
func (x *index) problemsOf(i *model.Infra) []model.Problem {
	problems := x.problems[i.Ref]
	if i.Cluster != nil && i.Cluster.Ref != i.Ref {
		problems = append(slices.Clip(problems), x.problems[i.Cluster.Ref]...)
	}
	return problems
}

// proxyMeanings tells proxies apart: one that is what it was is the same pointer.
func proxyMeanings(x *index) map[string]any {
	all := make(map[string]any, len(x.proxies))
	for key, p := range x.proxies {
		service, address := x.proxyService(p)
		all[key] = [4]any{p, service, address, fmt.Sprint(x.problems[p.Ref])}
	}
	return all
}

// infraMeanings tells Infras apart.
func infraMeanings(x *index) map[string]any { return x.infraMeanings() }

// meaningsOfInfras are those parts of the model that the status of an Infra is made of.
func (x *index) meaningsOfInfras() map[string]any {
	all := make(map[string]any, len(x.infras))
	for key, i := range x.infras {
		proxy := ""
		if i.Proxy != nil {
			proxy = fmt.Sprint(*i.Proxy)
		}
		all[key] = [3]any{i.Cluster, proxy, fmt.Sprint(x.problemsOf(i))}
	}
	return all
}

// proxyService is the Service in front of a proxy, "namespace/name", and its address.
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
