package kubevirt

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/watch"
)

// gap is for how long a watch may be between two connections and still be current: every
// watch ends after some minutes, to be opened again at once.
const gap = 10 * time.Second

// following is how the API server is followed.
type following struct {
	instances []*watch.Follower
	machines  []*machineFollower
	recorder  *recorder
}

// record makes an Event of an instance.
func (f *following) record(i *instance, note string) {
	if f != nil { // nil in tests of the index alone
		f.recorder.record(i, note)
	}
}

// newFollowing makes what follows the machines of a directory. Nothing happens until run.
func newFollowing(d *directory, client *rest.Config, log *slog.Logger) (*following, error) {
	full, err := dynamic.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("kubevirt: creating a client for %s: %w", client.Host, err)
	}
	names := rest.CopyConfig(client)
	names.Wrap(func(next http.RoundTripper) http.RoundTripper { return metadataOnly{next} })
	partial, err := dynamic.NewForConfig(names)
	if err != nil {
		return nil, fmt.Errorf("kubevirt: creating a client for %s: %w", client.Host, err)
	}
	f := &following{recorder: newRecorder(full, log)}
	for namespace := range strings.SplitSeq(d.config.namespaces, ",") {
		f.instances = append(f.instances, followInstances(d, full, namespace, log))
		f.machines = append(f.machines, followMachines(d, partial, namespace, log))
	}
	return f, nil
}

// run follows until the context ends.
func (f *following) run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { f.recorder.run(ctx) })
	for _, i := range f.instances {
		group.Go(func() { i.Run(ctx) })
	}
	for _, m := range f.machines {
		group.Go(func() { m.follower.Run(ctx) })
	}
	group.Wait()
}

// current reports whether everything is seen as it is now.
func (f *following) current() bool {
	for _, i := range f.instances {
		if !i.Current(gap) {
			return false
		}
	}
	return f.machinesCurrent()
}

// machinesCurrent reports whether the VirtualMachines are seen as they are now, where they
// may be seen at all.
func (f *following) machinesCurrent() bool {
	for _, m := range f.machines {
		if !m.refused() && !m.follower.Current(gap) {
			return false
		}
	}
	return true
}

// listed reports whether all instances have been listed.
func (f *following) listed() bool {
	for _, i := range f.instances {
		if _, synced := i.List(); !synced {
			return false
		}
	}
	for _, m := range f.machines {
		if _, synced := m.follower.List(); !synced && !m.refused() {
			return false
		}
	}
	return true
}

func (f *following) status() []watch.ResourceStatus {
	var list []watch.ResourceStatus
	for _, i := range f.instances {
		list = append(list, i.Status())
	}
	for _, m := range f.machines {
		list = append(list, m.follower.Status())
	}
	return list
}

// followInstances follows the VirtualMachineInstances of a namespace; empty for all.
func followInstances(d *directory, client dynamic.Interface, namespace string, log *slog.Logger) *watch.Follower {
	var f *watch.Follower
	f = watch.NewFollower(client, watch.Following{
		Resource: instances, Kind: "VirtualMachineInstance", Namespace: namespace, Selector: d.config.selector,
		Decode: decoder(d.config.network),
		Changed: func(o objects.Object) {
			if o == nil {
				list, _ := f.List()
				d.listedInstances(namespace, list)
				d.settled()
				return
			}
			if _, there := f.Get(o.GetNamespace(), o.GetName()); there {
				d.sawInstance(o)
				return
			}
			// One that merely lost its labels leaves like this, too, but was not deleted.
			last, ok := o.(*instance)
			d.remove(key{o.GetNamespace(), o.GetName()}, ok && last.Deleted)
		},
	}, log)
	return f
}

// sawInstance takes an instance in. One that cannot be read stays what it was.
func (d *directory) sawInstance(o objects.Object) {
	switch o := o.(type) {
	case *instance:
		d.put(o)
	case *objects.Broken:
		d.log.Error("a virtual machine instance cannot be read; what was known of it is kept", "instance", o.Namespace+"/"+o.Name, "err", o.Error)
	}
}

// listedInstances takes all instances of a namespace in, and those out that are not there.
func (d *directory) listedInstances(namespace string, list []objects.Object) {
	there := map[key]bool{}
	for _, o := range list {
		there[key{o.GetNamespace(), o.GetName()}] = true
		d.sawInstance(o)
	}
	d.mu.RLock()
	var gone []key
	for at := range d.instances {
		if !there[at] && (namespace == "" || at.namespace == namespace) {
			gone = append(gone, at)
		}
	}
	d.mu.RUnlock()
	for _, at := range gone {
		d.remove(at, false)
	}
}

// settled takes down, once, that the API server has been listed.
func (d *directory) settled() {
	if !d.follow.listed() {
		return
	}
	d.mu.Lock()
	before := d.known && d.asOf.IsZero()
	d.known, d.asOf = true, time.Time{}
	d.changes++
	n := len(d.instances)
	d.mu.Unlock()
	if !before {
		d.log.Info("the virtual machines are known", "scope", d.config.String(), "instances", n)
	}
}

// machineFollower follows the VirtualMachines of a namespace, by their names alone.
type machineFollower struct {
	follower *watch.Follower
	log      *slog.Logger
	settled  func()

	mu   sync.Mutex
	last string // what failed last
	no   bool   // they may not be read, or are not served
}

func followMachines(d *directory, client dynamic.Interface, namespace string, log *slog.Logger) *machineFollower {
	m := &machineFollower{log: log.With("resource", machines.GroupResource().String()), settled: d.settled}
	m.follower = watch.NewFollower(client, watch.Following{
		Resource: machines, Kind: "VirtualMachine", Namespace: namespace,
		Decode: func(u *unstructured.Unstructured) objects.Object {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()}}
		},
		Changed: func(o objects.Object) {
			if o == nil {
				list, _ := m.follower.List()
				d.listedMachines(namespace, list)
				d.settled()
				return
			}
			at := key{o.GetNamespace(), o.GetName()}
			if _, there := m.follower.Get(at.namespace, at.name); there {
				d.declare(at)
				return
			}
			d.undeclare(at, true)
		},
		Failed: m.failed,
	}, log)
	return m
}

// listedMachines is listedInstances for VirtualMachines.
func (d *directory) listedMachines(namespace string, list []objects.Object) {
	there := map[key]bool{}
	for _, o := range list {
		at := key{o.GetNamespace(), o.GetName()}
		there[at] = true
		d.declare(at)
	}
	d.mu.RLock()
	var gone []key
	for at, m := range d.machines {
		if m.declared && !there[at] && (namespace == "" || at.namespace == namespace) {
			gone = append(gone, at)
		}
	}
	d.mu.RUnlock()
	for _, at := range gone {
		d.undeclare(at, false)
	}
}

// failed is told how every attempt to follow went. Without the right to read
// VirtualMachines, or without such an API, a machine is there for as long as it runs.
func (m *machineFollower) failed(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	no := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	m.mu.Lock()
	news, refused := text != m.last, no && !m.no
	m.last, m.no = text, no
	m.mu.Unlock()
	switch {
	case refused:
		m.log.Warn("VirtualMachines cannot be read: a virtual machine keeps its address only for as long as it runs",
			"err", err, "remedy", "grant list and watch of them")
		m.settled()
	case no || !news:
	case err == nil:
		m.log.Info("watch is open")
	default:
		m.log.Error("watch failed; keeping the previous objects", "err", err)
	}
}

func (m *machineFollower) refused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.no
}

// metadataOnly asks an API server for objects without specification and status.
type metadataOnly struct{ next http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (m metadataOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	const metav1JSON = "application/json;as=%s;g=meta.k8s.io;v=v1"
	r = r.Clone(r.Context())
	kind := "PartialObjectMetadataList"
	if r.URL.Query().Has("watch") {
		kind = "PartialObjectMetadata"
	}
	r.Header.Set("Accept", fmt.Sprintf(metav1JSON, kind))
	return m.next.RoundTrip(r)
}
