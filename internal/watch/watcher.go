package watch

import (
	"cmp"
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
	// retryFirst and retryCap are the shortest and the longest wait between two attempts to connect, or to
	// find a resource that the API server does not serve.
	retryFirst = 200 * time.Millisecond
	retryCap   = 3 * time.Second
	// retryHosted is retryCap for watches of one hosted cluster, because there may be a thousand such watches.
	retryHosted = 20 * time.Second
	// retryMissing is the longest wait for a resource that the API server does not serve. Each attempt is two requests, and
	// a management cluster without Routes has as many such watches as pods.
	retryMissing = 30 * time.Second
	// retryReset is the time without a wait after which the waits are short again.
	retryReset = 2 * time.Minute
	// retryJitter is the random part of each wait, so that the watches of many processes do not start at the same time.
	retryJitter = 0.5
)

// watcher watches one resource, in one namespace or in all.
type watcher struct {
	resource resource
	key      objectKey
	client   dynamic.Interface
	table    *table
	log      *slog.Logger
	clock    clock.PassiveClock
	// maxBackoff is the longest wait between two attempts.
	maxBackoff time.Duration
	// selector is a label selector; empty for all objects.
	selector string
	// onAttempt, if set, is called with the result of every attempt, nil for success. With onAttempt,
	// errors are not logged.
	onAttempt func(error)

	mu    sync.Mutex
	state watchState
}

// watchState is the state of a watch.
type watchState struct {
	connected bool
	missing   bool // the API server does not serve the resource
	// missingSince is when missing became true.
	missingSince time.Time
	lastSeen     time.Time // when the watch was last connected
	verb, err    string    // the last failed request and its error; empty while connected
	reason       string    // of the error
}

func newWatcher(client dynamic.Interface, r resource, key objectKey, changed func(before, now objects.Object), log *slog.Logger) *watcher {
	log = log.With("resource", r.gvr.GroupResource().String())
	if key.namespace != "" {
		log = log.With("namespace", key.namespace)
	}
	w := &watcher{
		resource: r, key: key, client: client, table: newTable(r, changed), log: log, clock: clock.RealClock{},
		maxBackoff: retryCap, selector: r.selector,
	}
	w.table.key, w.table.log, w.table.keep = key, log, r.ruleFor(key)
	w.table.now = func() time.Time { return w.clock.Now() }
	return w
}

// run watches the resource until ctx is done.
func (w *watcher) run(ctx context.Context) {
	// recordAttempt logs each error once; client-go would log every attempt.
	quiet := logr.Discard()
	ctx = klog.NewContext(ctx, quiet)
	backoff := &wait.Backoff{Duration: retryFirst, Factor: 2, Jitter: retryJitter, Steps: 20, Cap: w.maxBackoff}
	r := cache.NewReflectorWithOptions(w.listerWatcher(), nil, w.table, cache.ReflectorOptions{
		Name: w.resource.gvr.String(), TypeDescription: w.resource.kind, Logger: &quiet, Backoff: backoff,
	})
	var group sync.WaitGroup
	defer group.Wait()
	if w.table.keep == keepOutage || w.table.keep == keepUnannounced {
		group.Go(func() { w.table.expireKept(ctx) })
	}
	retry := backoff.DelayWithReset(clock.RealClock{}, retryReset)
	for ctx.Err() == nil { // as Reflector.RunWithContext, which cannot wait longer for a missing resource
		_ = r.ListAndWatchWithContext(ctx) // recordAttempt logs the error
		select {
		case <-ctx.Done():
		case <-time.After(max(retry(), w.missingWait())):
		}
	}
}

// missingWait returns how long to wait for a resource that the API server does not serve: as long as it has been missing, at most
// retryMissing. It returns 0 for other resources, also for those that must not be read: users mend that, and expect an effect.
func (w *watcher) missingWait() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.state.missing || w.state.reason != string(metav1.StatusReasonNotFound) {
		return 0
	}
	return wait.Jitter(min(retryMissing, w.clock.Since(w.state.missingSince)), retryJitter)
}

func (w *watcher) listerWatcher() *cache.ListWatch {
	client := w.client.Resource(w.resource.gvr).Namespace(w.key.namespace)
	options := func(o metav1.ListOptions) metav1.ListOptions {
		if w.key.name != "" {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.key.name).String()
		}
		o.LabelSelector = w.selector
		return o
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, options(o))
			w.recordList(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			events, err := client.Watch(ctx, options(o))
			if err == nil && reflect.TypeOf(events) == emptyWatch {
				err = errNoAnswer
			}
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older server without streaming lists; the reflector falls back to a list
				w.recordAttempt(ctx, "watch", err)
			}
			if err != nil {
				return nil, err
			}
			return openWatch{events, w.recordEnd}, nil
		},
	}
}

// emptyWatch is the type that the client returns, without an error, if the connection timed out or was
// closed.
var emptyWatch = reflect.TypeOf(apiwatch.NewEmptyWatch())

var errNoAnswer = errors.New("the connection timed out or was closed before the API server answered")

// openWatch is an open watch. The reflector stops every watch, even one that the API server closed.
type openWatch struct {
	apiwatch.Interface

	recordEnd func()
}

// Stop implements apiwatch.Interface.
func (s openWatch) Stop() {
	s.Interface.Stop()
	s.recordEnd()
}

// recordEnd records that the watch has ended. The next one may be delayed by the backoff.
func (w *watcher) recordEnd() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state.connected {
		w.state.connected, w.state.lastSeen = false, w.clock.Now()
	}
}

// recordList records the result of a list. A successful list is not a connection yet. A failed one is not
// recorded if a watch failed before, because the reflector tries both in turn.
func (w *watcher) recordList(ctx context.Context, err error) {
	w.mu.Lock()
	failedVerb := w.state.verb
	if err == nil && failedVerb == "list" {
		w.state.verb, w.state.err = "", ""
	}
	w.mu.Unlock()
	if err != nil && failedVerb != "watch" {
		w.recordAttempt(ctx, "list", err)
	}
}

// sourceAddress matches the source address in errors of connections, which differs between attempts.
var sourceAddress = regexp.MustCompile(`\S+->`)

// stableError is an error whose text is the same for every attempt.
type stableError struct{ error }

func (e stableError) Error() string { return sourceAddress.ReplaceAllString(e.error.Error(), "") }

// Unwrap supports errors.As.
func (e stableError) Unwrap() error { return e.error }

// recordAttempt records the result of a request, and logs it if it differs from the previous one.
func (w *watcher) recordAttempt(ctx context.Context, verb string, err error) {
	if ctx.Err() != nil {
		return
	}
	// The URL differs between requests; the wrapped error does not.
	if requestErr := (*url.Error)(nil); errors.As(err, &requestErr) {
		err = requestErr.Err
	}
	if err != nil {
		err = stableError{err}
	}
	now := w.clock.Now()
	w.mu.Lock()
	before := w.state
	w.state.connected = err == nil
	if err == nil {
		w.state = watchState{connected: true, lastSeen: now}
	} else {
		w.state.verb, w.state.err = verb, err.Error()
		w.state.reason = cmp.Or(string(apierrors.ReasonForError(err)), reasonUnreachable)
		w.state.missing = apierrors.IsNotFound(err) || w.resource.optional && apierrors.IsForbidden(err)
		if w.state.missing && !before.missing {
			w.state.missingSince = now
		}
		if before.connected || w.state.missing { // a missing resource is known to be empty
			w.state.lastSeen = now
		}
	}
	after := w.state
	w.mu.Unlock()
	if after.missing && !before.missing && (w.table.keep != keepNothing || w.onAttempt == nil) {
		w.table.keepUnserved()
	}
	if w.onAttempt != nil {
		w.onAttempt(err)
		return
	}

	switch {
	case after.connected:
		if !before.connected && before.err != "" {
			w.log.Info("watch recovered")
		}
	case after.missing:
		if !before.missing && apierrors.IsForbidden(err) {
			w.log.Warn("cannot read an optional resource; continuing without it", "verb", verb, "err", err, "remedy", remedy(err))
		} else if !before.missing {
			w.log.Info("the API server does not serve this resource; waiting for it to appear")
		}
	case before.err != after.err:
		w.log.Error("watch failed; keeping the previous objects", "verb", verb, "err", err, "remedy", remedy(err))
	}
}

// remedy returns what to do about an error of an API server.
func remedy(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return "grant this user the verbs list and watch for the resource"
	case apierrors.IsUnauthorized(err):
		return "renew the kubeconfig's credentials; if a ServiceAccount was created again, delete its pods"
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
		Reason:    w.state.reason,
		Kept:      w.table.keptState(),
	}
}
