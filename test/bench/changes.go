package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/test/bench/measure"
)

const (
	// changeGap is the longest pause between two changes. Some fall into the time for
	// which changes are gathered after a snapshot, others come after a quiet while.
	changeGap = 60 * time.Millisecond
	// changeDeadline bounds the wait for one change.
	changeDeadline = 20 * time.Second
	// pollPause keeps the questions after an answer from taking the server's time.
	pollPause = 100 * time.Microsecond
)

var infraResource = schema.GroupVersionResource{Group: "hostedcluster.densityops.com", Version: "v1alpha1", Resource: "infras"}

// delays are the times from a change to the first right answer, one for each change.
type delays struct {
	clusters int
	event    []time.Duration // from when a watch of our own had it
	reply    []time.Duration // from when the writer knew that it was taken
	poll     []time.Duration // from the last wrong answer's question: how exact all this is
}

// measureChanges moves proxies to another address through the API server, one at
// a time, and asks as a virtual machine until the answer follows. The server may
// use every CPU. It returns the server's memory afterwards.
func (b *bench) measureChanges(ctx context.Context, n int) (int, error) {
	progress("following %d changes", b.changes)
	list := questions(n, fromPod)
	s, err := b.start(ctx, "changes", nil, b.viewsOfAPI(), client{source: loopback}, list[0])
	if err != nil {
		return 0, err
	}
	defer s.Stop()
	infras, err := dynamic.NewForConfig(b.Management.RESTConfig())
	if err != nil {
		return 0, fmt.Errorf("making a client: %w", err)
	}
	w := &mover{server: s, infras: infras.Resource(infraResource).Namespace(namespace), events: make(chan event, 16)}
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
		if err := w.move(ctx, c, host, &d); err != nil {
			return 0, fmt.Errorf("changing %s: %w", c.name(), err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(changeGap))))
	}
	b.report.delays = append(b.report.delays, d)
	return s.memory()
}

// mover changes Infras and sees what follows.
type mover struct {
	server *server
	infras dynamic.ResourceInterface
	events chan event
}

// event is a change as a watch of our own has it.
type event struct {
	version string
	at      time.Time
}

// watch takes down when changes arrive, until the context ends.
func (w *mover) watch(ctx context.Context) error {
	// One object will do to learn from where to watch.
	now, err := w.infras.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("listing Infras: %w", err)
	}
	stream, err := w.infras.Watch(ctx, metav1.ListOptions{ResourceVersion: now.GetResourceVersion()})
	if err != nil {
		return fmt.Errorf("watching Infras: %w", err)
	}
	go func() {
		defer close(w.events)
		defer stream.Stop()
		for e := range stream.ResultChan() {
			at := time.Now()
			object, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				return // an error: whoever waits for the event finds the channel closed
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

// move gives the cluster's proxy another address on the VLAN and notes how long
// the answer took to follow.
func (w *mover) move(ctx context.Context, c cluster, host byte, d *delays) error {
	ctx, cancel := context.WithTimeout(ctx, changeDeadline)
	defer cancel()
	q := question{name: labels[0] + "." + c.domain(), want: c.onVLAN(host)}
	answered := make(chan follower, 1)
	go func() { answered <- w.follow(ctx, c, q) }()

	patch := fmt.Appendf(nil, `{"spec":{"infraComponents":{"proxy":{"serverIP":"%s"}}}}`, q.want)
	infra, err := w.infras.Patch(ctx, c.name(), types.MergePatchType, patch, metav1.PatchOptions{})
	replied := time.Now()
	if err != nil {
		return err
	}
	seen, err := w.await(ctx, infra.GetResourceVersion())
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

// await returns when our own watch had a version.
func (w *mover) await(ctx context.Context, version string) (time.Time, error) {
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("waiting for the watch event: %w", ctx.Err())
		case e, ok := <-w.events:
			if !ok {
				return time.Time{}, errors.New("the watch of Infras has ended")
			}
			if e.version == version {
				return e.at, nil
			}
		}
	}
}

// follower is what became of an answer that was waited for.
type follower struct {
	at   time.Time     // when the first right answer was there
	poll time.Duration // since the last wrong answer's question was sent
	err  error
}

// follow asks as a virtual machine of the cluster until the answer is right.
func (w *mover) follow(ctx context.Context, c cluster, q question) follower {
	as := client{source: c.onVLAN(virtualHost).String()}
	conn, err := as.dial(ctx, w.server)
	if err != nil {
		return follower{err: err}
	}
	defer conn.Close() //nolint:errcheck // a UDP socket
	for before := time.Now(); ; {
		sent := time.Now()
		err := as.ask(conn, w.server, q)
		at := time.Now()
		if err == nil {
			return follower{at: at, poll: at.Sub(before)}
		}
		if ctx.Err() != nil {
			return follower{err: err}
		}
		before = sent
		measure.Pause(pollPause)
	}
}
