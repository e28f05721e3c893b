package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/test/bench/measure"
)

const (
	// maxChangePause is the longest pause between two changes. Pauses are random, so that some changes fall into the
	// time in which the server collects changes after a snapshot, and others do not.
	maxChangePause = 60 * time.Millisecond
	// changeDeadline limits the wait for one change.
	changeDeadline = 20 * time.Second
	// pollPause is the pause between two queries, so that polling takes little CPU time from the server.
	pollPause = 100 * time.Microsecond
)

var (
	infraResource = schema.GroupVersionResource{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Resource: "infras"}
	leaseResource = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// delays are the times from each change to the first right answer.
type delays struct {
	clusters int
	what     string          // what changed, if it was not a proxy's address
	event    []time.Duration // since the benchmark's own watch received the change
	reply    []time.Duration // since the API server's reply to the change
	poll     []time.Duration // since the last query with a wrong answer: the resolution of the measurement
}

// measureChanges changes the addresses of proxies in the API server, one at a time, and queries as a VM until the
// answer is right. The server may use every CPU. It returns the server's resident memory in bytes afterwards.
func (b *bench) measureChanges(ctx context.Context, n int) (int, error) {
	progress("following %d changes", b.changes)
	list := questions(n, fromPod)
	s, err := b.start(ctx, "changes", nil, b.viewsOfAPI(), client{source: loopback}, list[0])
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	w, err := b.newChanger(s, infraResource)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := w.watch(ctx); err != nil {
		return 0, err
	}
	random := rand.New(rand.NewPCG(3, 4))
	d := delays{clusters: n}
	moved := map[cluster]bool{}
	for range b.changes {
		c := cluster(random.IntN(n))
		moved[c] = !moved[c]
		host := byte(proxyHost)
		if moved[c] {
			host = proxyMoved
		}
		if err := w.move(ctx, change{c.name(), proxyPatch(c.onVLAN(host)), c.onVLAN(vmHost).String(), c.api(c.onVLAN(host))}, &d); err != nil {
			return 0, fmt.Errorf("changing %s: %w", c.name(), err)
		}
		time.Sleep(randomPause())
	}
	b.report.delays = append(b.report.delays, d)
	burst, err := w.burst(ctx, n)
	if err != nil {
		return 0, fmt.Errorf("changing all at once: %w", err)
	}
	b.report.bursts = append(b.report.bursts, burst)
	return s.memory()
}

func randomPause() time.Duration { return rand.N(maxChangePause) }

// A changer changes objects of one resource and measures when answers follow.
type changer struct {
	server  *server
	objects dynamic.ResourceInterface
	events  chan event
}

// A change is a patch of an object, and the question whose answer follows it.
type change struct {
	object string
	patch  []byte
	source string // source address of the client
	question
}

// newChanger returns a changer that measures with a server, which may be nil.
func (b *bench) newChanger(s *server, resource schema.GroupVersionResource) (*changer, error) {
	objects, err := dynamic.NewForConfig(b.Management.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return &changer{server: s, objects: objects.Resource(resource).Namespace(namespace), events: make(chan event, 4096)}, nil
}

// changeRepeatedly changes the address of a cluster's proxy as often as measureChanges changes those of all.
func (b *bench) changeRepeatedly(ctx context.Context, c cluster) error {
	w, err := b.newChanger(nil, infraResource)
	if err != nil {
		return err
	}
	for i := range b.changes {
		if _, err := w.patch(ctx, c.name(), proxyPatch(c.onVLAN([]byte{proxyHost, proxyMoved}[i%2]))); err != nil {
			return fmt.Errorf("changing %s: %w", c.name(), err)
		}
	}
	return nil
}

// burst is the result of changing all clusters as fast as the API server accepts it.
type burst struct {
	clusters int
	changing time.Duration   // from the first change to the API server's last reply
	last     time.Duration   // from the last reply to the first right answer for the clusters that were changed last
	queries  []time.Duration // response times during the burst, of queries for another name
}

// burst changes the addresses of all proxies, and checks all answers afterwards.
func (w *changer) burst(ctx context.Context, n int) (burst, error) {
	result := burst{clusters: n}
	querying, stop := context.WithCancel(ctx)
	var queries sync.WaitGroup
	queries.Go(func() { result.queries = w.measureQueries(querying) })
	defer queries.Wait()
	defer stop()

	started := time.Now()
	if err := measure.Fill(ctx, 0, n, func(ctx context.Context, number int) error {
		_, err := w.patch(ctx, cluster(number).name(), proxyPatch(cluster(number).onVLAN(proxyLast)))
		return err
	}); err != nil {
		return burst{}, err
	}
	replied := time.Now()
	result.changing = replied.Sub(started)
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	for number := max(0, n-16); number < n; number++ {
		c := cluster(number)
		f := w.follow(ctx, c.onVLAN(vmHost).String(), c.api(c.onVLAN(proxyLast)))
		if f.err != nil {
			return burst{}, f.err
		}
		result.last = max(result.last, f.at.Sub(replied))
	}
	stop()
	queries.Wait()
	if len(result.queries) == 0 {
		return burst{}, errors.New("queries failed during the changes")
	}
	for number := range n {
		c := cluster(number)
		as := client{source: c.onVLAN(vmHost).String()}
		if err := as.check(ctx, w.server, c.api(c.onVLAN(proxyLast))); err != nil {
			return burst{}, err
		}
	}
	return result, nil
}

// measureQueries queries as a pod until the context ends, and returns the response times.
func (w *changer) measureQueries(ctx context.Context) []time.Duration {
	as, q := client{source: loopback}, fromPod(0)[0]
	conn, err := as.dial(ctx, w.server)
	if err != nil {
		return nil
	}
	defer conn.Close() //nolint:errcheck // a UDP socket
	var times []time.Duration
	for ctx.Err() == nil {
		sent := time.Now()
		if err := as.query(conn, w.server, q); err != nil {
			return nil
		}
		times = append(times, time.Since(sent))
		measure.Pause(time.Millisecond)
	}
	return times
}

func (w *changer) patch(ctx context.Context, object string, patch []byte) (*unstructured.Unstructured, error) {
	return w.objects.Patch(ctx, object, types.MergePatchType, patch, metav1.PatchOptions{})
}

// proxyPatch changes the VLAN address of an Infra's proxy.
func proxyPatch(address netip.Addr) []byte {
	return fmt.Appendf(nil, `{"spec":{"infraComponents":{"proxy":{"serverIP":"%s"}}}}`, address)
}

// An event is a change of an object that the benchmark's own watch received.
type event struct {
	version string
	at      time.Time
}

// watch sends the time of each change to events, until the context ends.
func (w *changer) watch(ctx context.Context) error {
	// The list of one object has the resourceVersion from which to watch.
	now, err := w.objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("listing objects: %w", err)
	}
	stream, err := w.objects.Watch(ctx, metav1.ListOptions{ResourceVersion: now.GetResourceVersion()})
	if err != nil {
		return fmt.Errorf("watching objects: %w", err)
	}
	go func() {
		defer close(w.events)
		defer stream.Stop()
		for e := range stream.ResultChan() {
			at := time.Now()
			object, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				return // an error, which await reports because the channel is closed
			}
			select {
			case w.events <- event{object.GetResourceVersion(), at}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// move changes an object and adds the delay until the answer follows to d.
func (w *changer) move(ctx context.Context, c change, d *delays) error {
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	answered := make(chan answerTime, 1)
	go func() { answered <- w.follow(ctx, c.source, c.question) }()

	changed, err := w.patch(ctx, c.object, c.patch)
	replied := time.Now()
	if err != nil {
		return err
	}
	seen, err := w.await(ctx, changed.GetResourceVersion())
	if err != nil {
		return err
	}
	f := <-answered
	if f.err != nil {
		return f.err
	}
	d.event = append(d.event, f.at.Sub(seen))
	d.reply = append(d.reply, f.at.Sub(replied))
	d.poll = append(d.poll, f.poll)
	return nil
}

// await returns when the watch received a version.
func (w *changer) await(ctx context.Context, version string) (time.Time, error) {
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for the watch event: %w", ctx.Err())
		case e, ok := <-w.events:
			if !ok {
				return time.Time{}, errors.New("the watch of changed objects has ended")
			}
			if e.version == version {
				return e.at, nil
			}
		}
	}
}

// answerTime is when an answer became right.
type answerTime struct {
	at   time.Time     // of the first right answer
	poll time.Duration // since the last query with a wrong answer was sent
	err  error
}

// follow queries from a source address until the answer is right.
func (w *changer) follow(ctx context.Context, source string, q question) answerTime {
	as := client{source: source}
	conn, err := as.dial(ctx, w.server)
	if err != nil {
		return answerTime{err: err}
	}
	defer conn.Close() //nolint:errcheck // a UDP socket
	for before := time.Now(); ; {
		sent := time.Now()
		err := as.query(conn, w.server, q)
		at := time.Now()
		if err == nil {
			return answerTime{at: at, poll: at.Sub(before)}
		}
		if ctx.Err() != nil {
			return answerTime{err: err}
		}
		before = sent
		measure.Pause(pollPause)
	}
}
