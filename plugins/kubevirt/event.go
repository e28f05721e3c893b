package kubevirt

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var events = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}

const (
	// ReasonReservationRefused is the reason of an Event about a reservation that is not honoured.
	ReasonReservationRefused = "ReservationRefused"

	reporter = "hostedcluster.densityops.com/coredhcp"
	// eventTimeout bounds the making of one.
	eventTimeout = 5 * time.Second
	// eventsWaiting is how many may wait; the log has them all.
	eventsWaiting = 256
	// mostNote is how long the API lets a note be.
	mostNote = 1024
)

// event is one that waits to be made.
type event struct {
	about *instance
	note  string
}

// recorder makes Events, one after the other, so that nobody waits for the API server.
type recorder struct {
	client  dynamic.Interface
	log     *slog.Logger
	waiting chan event
	host    string
	failed  string // the last error, which is logged once
}

func newRecorder(client dynamic.Interface, log *slog.Logger) *recorder {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "coredhcp"
	}
	return &recorder{client: client, log: log, waiting: make(chan event, eventsWaiting), host: host}
}

// record has an Event made, unless too many wait.
func (r *recorder) record(about *instance, note string) {
	select {
	case r.waiting <- event{about, note}:
	default:
	}
}

// run makes Events until the context ends.
func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.waiting:
			r.create(ctx, e)
		}
	}
}

// create makes an Event. Replicas give it the same name, so that there is one.
func (r *recorder) create(ctx context.Context, e event) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := r.client.Resource(events).Namespace(e.about.Namespace).Create(ctx, r.object(e, time.Now()), metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		r.failed = ""
	case err.Error() != r.failed:
		r.failed = err.Error()
		r.log.Warn("an Event could not be created; the log and /state have what it would say", "instance", e.about.Namespace+"/"+e.about.Name, "err", err)
	}
}

func (r *recorder) object(e event, now time.Time) *unstructured.Unstructured {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(string(e.about.UID) + e.note)) // it cannot fail
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": events.GroupVersion().String(), "kind": "Event",
		"metadata":            map[string]any{"namespace": e.about.Namespace, "name": fmt.Sprintf("%s.%x", e.about.Name, sum.Sum64())},
		"eventTime":           now.UTC().Format(metav1.RFC3339Micro),
		"type":                "Warning",
		"reason":              ReasonReservationRefused,
		"action":              "Lease",
		"note":                e.note[:min(len(e.note), mostNote)],
		"reportingController": reporter,
		"reportingInstance":   r.host,
		"regarding": map[string]any{
			"apiVersion": instances.GroupVersion().String(), "kind": "VirtualMachineInstance",
			"namespace": e.about.Namespace, "name": e.about.Name, "uid": string(e.about.UID),
		},
	}}
}
