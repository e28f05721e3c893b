package control

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// outcomes are the outcomes in hosted clusters, by Infra. It is safe for concurrent use.
type outcomes struct {
	mu      sync.Mutex
	byInfra map[client.ObjectKey]outcome
	changed func(client.ObjectKey)
}

// source returns a source that enqueues an Infra when its outcome changes.
func (o *outcomes) source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.changed = func(key client.ObjectKey) { q.Add(reconcile.Request{NamespacedName: key}) }
		return nil
	})
}

func (o *outcomes) get(key client.ObjectKey) outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byInfra[key]
}

func (o *outcomes) set(key client.ObjectKey, now outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, known := o.byInfra[key]
	if known && before.created.Equal(now.created) && before.warning == now.warning && before.String() == now.String() {
		return
	}
	if o.byInfra == nil {
		o.byInfra = map[client.ObjectKey]outcome{}
	}
	o.byInfra[key] = now
	if o.changed != nil {
		o.changed(key)
	}
}

func (o *outcomes) forget(key client.ObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byInfra, key)
}
