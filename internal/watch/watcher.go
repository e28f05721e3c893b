package watch

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"reflect"
	"regexp"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/densityops/oooi/internal/objects"
)

const (
	// retryFirst and retryCap bound the wait between two attempts to reach an API
	// server, or an API that it does not serve.
	retryFirst = 200 * time.Millisecond
	retryCap   = 3 * time.Second
	// retryHosted is retryCap for what belongs to one hosted cluster: there may be a
	// thousand of them.
	retryHosted = 20 * time.Second
	// goneAfter is for how long an API that vanished between two watches keeps its
	// last objects: a restarting API server can deny for a moment that it has it.
	goneAfter = time.Minute
)

// watcher follows one resource, in one namespace or in all.
type watcher struct {
	resource resource
	key      objectKey
	client   dynamic.Interface
	table    *table
	log      *slog.Logger
	clock    clock.PassiveClock
	// patience is the longest wait between two attempts.
	patience time.Duration
	// labels narrow the watch; nil for all. So does a selector in words, in their place.
	labels   map[string]string
	selector string
	// failed, if set, is told how every attempt went, in place of the log.
	failed func(error)

	mu    sync.Mutex
	state watchState
}

// watchState is how a watch stands.
type watchState struct {
	connected bool
	missing   bool      // the API server does not serve the resource
	lastSeen  time.Time // when it was last connected
	lostAt    time.Time // when the resource was first found missing
	verb, err string    // what failed last, and why; empty since it was last connected
}

func newWatcher(client dynamic.Interface, r resource, key objectKey, changed func(objects.Object), log *slog.Logger) *watcher {
	log = log.With("resource", r.gvr.GroupResource().String())
	if key.namespace != "" {
		log = log.With("namespace", key.namespace)
	}
	w := &watcher{
		resource: r, key: key, client: client, table: newTable(r.decode, changed), log: log, clock: clock.RealClock{},
		patience: retryCap,
	}
	w.table.group = r.group
	return w
}

// run follows the resource until the context ends.
func (w *watcher) run(ctx context.Context) {
	// Errors are reported once, by note, not by client-go on every attempt.
	quiet := logr.Discard()
	ctx = klog.NewContext(ctx, quiet)
	backoff := &wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: 0.5, Steps: 20, Cap: w.patience}
	r := cache.NewReflectorWithOptions(w.listerWatcher(), nil, w.table, cache.ReflectorOptions{
		Name: w.resource.gvr.String(), TypeDescription: w.resource.kind, Logger: &quiet, Backoff: backoff,
	})
	r.RunWithContext(ctx)
}

func (w *watcher) listerWatcher() *cache.ListWatch {
	client := w.client.Resource(w.resource.gvr).Namespace(w.key.namespace)
	options := func(o metav1.ListOptions) metav1.ListOptions {
		if w.key.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.key.name).String()
		}
		if len(w.labels) > 0 {
			o.LabelSelector = labels.SelectorFromSet(w.labels).String()
		}
		if w.selector != "" {
			o.LabelSelector = w.selector
		}
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, options(o))
			w.noteList(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			events, err := client.Watch(ctx, options(o))
			if err == nil && reflect.TypeOf(events) == emptyWatch {
				err = errNoAnswer
			}
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older server: the reflector lists instead
				w.note(ctx, "watch", err)
			}
			if err != nil {
				return nil, err
			}
			return stream{events, w.ended}, nil
		},
	}
}

// emptyWatch is what the client returns, without an error, where the connection timed
// out or was closed.
var emptyWatch = reflect.TypeOf(apiwatch.NewEmptyWatch())

var errNoAnswer = errors.New("the connection timed out or was closed before the API server answered")

// stream is an open watch. The reflector stops every watch that ends, also one that
// the API server has ended.
type stream struct {
	apiwatch.Interface

	ended func()
}

// Stop is apiwatch.Interface's.
func (s stream) Stop() {
	s.Interface.Stop()
	s.ended()
}

// ended takes down that the watch is over. The next one may have to wait.
func (w *watcher) ended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.connected {
		w.state.connected, w.state.lastSeen = false, w.clock.Now()
	}
}

// noteList takes down how a list went. A list that succeeds is no connection yet; one
// that fails after a watch has failed is no news: the reflector tries both in turn.
func (w *watcher) noteList(ctx context.Context, err error) {
	w.mu.Lock()
	standing := w.state.verb
	if err == nil && standing == "list" {
		w.state.verb, w.state.err = "", ""
	}
	w.mu.Unlock()
	if err != nil && standing != "watch" {
		w.note(ctx, "list", err)
	}
}

// sourceAddress is what differs between errors of connections that fail alike.
var sourceAddress = regexp.MustCompile(`\S+->`)

// plain is an error without what differs from one attempt to the next.
type plain struct{ error }

func (e plain) Error() string { return sourceAddress.ReplaceAllString(e.error.Error(), "") }

// Unwrap is for errors.As.
func (e plain) Unwrap() error { return e.error }

// note takes down how an attempt went, and logs when that is news.
func (w *watcher) note(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	// The URL of a request differs every time; what went wrong does not.
	if requestErr := (*url.Error)(nil); errors.As(err, &requestErr) {
		err = requestErr.Err
	}
	if err != nil {
		err = plain{err}
	}
	now := w.clock.Now()
	w.mu.Lock()
	before := w.state
	w.state.connected = err == nil
	if err == nil {
		w.state = watchState{connected: true, lastSeen: now}
	} else {
		w.state.verb, w.state.err = verb, err.Error()
		w.state.missing = apierrors.IsNotFound(err)
		if before.connected || w.state.missing { // that there is nothing to see is knowledge, too
			w.state.lastSeen = now
		}
		if w.state.missing && !before.missing {
			w.state.lostAt = now
		}
	}
	after := w.state
	w.mu.Unlock()
	if w.failed != nil {
		w.failed(err)
		return
	}

	switch {
	case after.connected:
		if !before.connected && before.err != "" {
			w.log.Info("watch recovered")
		}
	case after.missing:
		if !before.missing {
			w.log.Info("the API server does not serve this resource; it is used when it appears")
		}
		w.dropMissing(now.Sub(after.lostAt))
	case before.err != after.err:
		w.log.Error("watch failed; keeping the previous objects", "verb", verb, "err", err, "remedy", remedy(err))
	}
}

// dropMissing treats a resource that is not served as one without objects: at once
// where none were known, after a while where some were.
func (w *watcher) dropMissing(since time.Duration) {
	items, synced := w.table.list()
	if synced && len(items) == 0 {
		return
	}
	if len(items) > 0 && since < goneAfter {
		return
	}
	if err := w.table.Replace(nil, ""); err != nil {
		w.log.Error("emptying the table", "err", err)
	}
}

func remedy(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "grant list and watch to this user"
	case apierrors.IsUnauthorized(err):
		return "renew the kubeconfig's credentials"
	default:
		return "check the connection to the API server"
	}
}

func (w *watcher) status() ResourceStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	items, synced := w.table.list()
	return ResourceStatus{
		Resource:  w.resource.gvr.GroupResource().String(),
		Namespace: w.key.namespace,
		Name:      w.key.name,
		Objects:   len(items),
		Synced:    synced,
		Connected: w.state.connected,
		Missing:   w.state.missing,
		LastSeen:  w.state.lastSeen,
		Error:     w.state.err,
	}
}
