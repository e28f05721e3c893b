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
	// ReasonReservationRefused is the reason of Events about refused reservations.
	ReasonReservationRefused = "ReservationRefused"

	reporter = "hostedcluster.densityops.com/coredhcp"
	// eventTimeout is the timeout of the creation of one Event.
	eventTimeout = 5 * time.Second
	// maxPendingEvents is the length of the queue. Further Events are dropped; the log has all refused
	// reservations.
	maxPendingEvents = 256
	// maxNote is the API's limit for the note of an Event, in bytes.
	maxNote = 1024
)

// An event is an Event to be created.
type event struct {
	about *instance
	note  string
}

// A recorder creates Events in its own goroutine, so that callers do not wait for the API server.
type recorder struct {
	client  dynamic.Interface
	log     *slog.Logger
	pending chan event
	host    string
	failed  string // the last error, which is logged once
}

func newRecorder(client dynamic.Interface, log *slog.Logger) *recorder {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "coredhcp"
	}
	return &recorder{client: client, log: log, pending: make(chan event, maxPendingEvents), host: host}
}

// record queues an Event. It drops the Event if the queue is full.
func (r *recorder) record(about *instance, note string) {
	select {
	case r.pending <- event{about, note}:
	default:
	}
}

// run creates Events until ctx is done.
func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-r.pending:
			r.create(ctx, e)
		}
	}
}

// create creates an Event. Its name depends on instance and note only, so all replicas together create one Event.
func (r *recorder) create(ctx context.Context, e event) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	_, err := r.client.Resource(events).Namespace(e.about.Namespace).Create(ctx, r.object(e, time.Now()), metav1.CreateOptions{})
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		r.failed = ""
	case err.Error() != r.failed:
		r.failed = err.Error()
		r.log.Warn("cannot create an Event; refused reservations are in the log and in /state", "instance", e.about.Namespace+"/"+e.about.Name, "err", err)
	}
}

func (r *recorder) object(e event, now time.Time) *unstructured.Unstructured {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(string(e.about.UID) + e.note)) // never returns an error
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": events.GroupVersion().String(), "kind": "Event",
		"metadata":            map[string]any{"namespace": e.about.Namespace, "name": fmt.Sprintf("%s.%x", e.about.Name, sum.Sum64())},
		"eventTime":           now.UTC().Format(metav1.RFC3339Micro),
		"type":                "Warning",
		"reason":              ReasonReservationRefused,
		"action":              "Lease",
		"note":                e.note[:min(len(e.note), maxNote)],
		"reportingController": reporter,
		"reportingInstance":   r.host,
		"regarding": map[string]any{
			"apiVersion": instances.GroupVersion().String(), "kind": "VirtualMachineInstance",
			"namespace": e.about.Namespace, "name": e.about.Name, "uid": string(e.about.UID),
		},
	}}
}
