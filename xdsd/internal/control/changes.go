package control

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

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
func changes(store *watch.Store, fingerprints func(*model.Snapshot) map[string]any, affected func(objects.Object) string) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		var mu sync.Mutex
		before := map[string]any{}
		enqueue := func() {
			s := store.Snapshot()
			if s == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			now := fingerprints(s)
			for key, value := range now {
				if old, known := before[key]; !known || old != value {
					q.Add(requestOf(key))
				}
				delete(before, key)
			}
			for key := range before {
				q.Add(requestOf(key))
			}
			before = now
		}
		context.AfterFunc(ctx, store.Subscribe(enqueue))
		context.AfterFunc(ctx, store.SubscribeObjects(func(o objects.Object) {
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

// changedProxy returns the name of a ProxyServer.
func changedProxy(o objects.Object) string {
	if p, ok := o.(*v1alpha1.ProxyServer); ok {
		return client.ObjectKeyFromObject(p).String()
	}
	return ""
}

// changedInfra returns the name of an Infra, or of the Infra that a ProxyServer refers to.
func changedInfra(o objects.Object) string {
	switch o := o.(type) {
	case *v1alpha1.Infra:
		return client.ObjectKeyFromObject(o).String()
	case *v1alpha1.ProxyServer:
		if o.Spec.InfraRef != nil {
			return o.Namespace + "/" + o.Spec.InfraRef.Name
		}
	}
	return ""
}

func requestOf(key string) reconcile.Request {
	namespace, name, _ := strings.Cut(key, "/")
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// modelOf returns an Infra in the model. It returns nil for nil, and if the snapshot was built from another version of the
// spec: the next snapshot then enqueues the Infra again.
func modelOf(s *model.Snapshot, object *v1alpha1.Infra) *model.Infra {
	if object == nil {
		return nil
	}
	i := s.Infra(client.ObjectKeyFromObject(object).String())
	if i == nil || i.UID != object.UID || i.Generation != object.Generation {
		return nil
	}
	return i
}

// problemsOf returns the problems of some objects in the model.
func problemsOf(s *model.Snapshot, of ...model.Ref) []model.Problem {
	return slices.DeleteFunc(slices.Clone(s.Problems), func(p model.Problem) bool { return !slices.Contains(of, p.Object) })
}

// problemTexts returns the problems in the model by object.
func problemTexts(s *model.Snapshot) map[model.Ref]string {
	texts := map[model.Ref]string{}
	for _, p := range s.Problems {
		texts[p.Object] += fmt.Sprintln(p)
	}
	return texts
}

// proxyFingerprints returns the fingerprints of ProxyServers. Snapshots share objects that have not changed, so
// that a pointer identifies their content.
func proxyFingerprints(s *model.Snapshot) map[string]any {
	problems, all := problemTexts(s), make(map[string]any, len(s.ProxyServers))
	for _, p := range s.ProxyServers {
		service, address := proxyService(s, p)
		all[p.Key()] = [4]any{p, service, address, problems[p.Ref]}
	}
	return all
}

// infraFingerprints returns the fingerprints of Infras: the parts of the model that their status depends on.
func infraFingerprints(s *model.Snapshot) map[string]any {
	problems, all := problemTexts(s), make(map[string]any, len(s.Infras))
	for _, i := range s.Infras {
		text := problems[i.Ref]
		if i.Cluster != nil && i.Cluster.Ref != i.Ref {
			text += problems[i.Cluster.Ref]
		}
		if i.Proxy != nil {
			text += fmt.Sprint(*i.Proxy)
		}
		all[i.Key()] = [5]any{i.UID, i.Generation, i.Cluster, i.NotChosen, text}
	}
	return all
}

// proxyService returns the Service in front of a proxy, as "namespace/name", and its first cluster IP; empty if
// unknown.
func proxyService(s *model.Snapshot, p *model.ProxyServer) (service, address string) {
	service, addresses := p.Key(), s.ServiceIPs(p.Key())
	if p.Infra != nil {
		i := s.Infra(p.Infra.Key())
		if i == nil || i.Proxy == nil {
			return "", ""
		}
		service, addresses = i.Proxy.Service, i.Proxy.ClusterIPs
	}
	switch {
	case len(addresses) > 0:
		return service, addresses[0].String()
	case p.Infra == nil: // without a Service
		return "", ""
	}
	return service, ""
}
