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

// gap is the maximum time between two connections of a watch that still counts as current: API servers close every
// watch after some minutes, and clients reopen it immediately.
const gap = 10 * time.Second

// An apiFollower watches the resources of an API server for a directory, and creates Events.
type apiFollower struct {
	instances []*watch.Follower
	vms       []*vmFollower
	clients   *testClients // nil for none
	recorder  *recorder
}

// record queues an Event of an instance.
func (f *apiFollower) record(i *instance, note string) {
	if f != nil { // nil in tests of the index
		f.recorder.record(i, note)
	}
}

// newFollower returns the apiFollower of a directory. It does not contact the API server before run.
func newFollower(d *directory, client *rest.Config, log *slog.Logger) (*apiFollower, error) {
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
	f := &apiFollower{recorder: newRecorder(full, log)}
	for namespace := range strings.SplitSeq(d.config.namespaces, ",") {
		f.instances = append(f.instances, followInstances(d, full, namespace, log))
		f.vms = append(f.vms, followVirtualMachines(d, partial, namespace, log))
	}
	if d.config.testClients != "" {
		f.clients = followTestClients(d, full, log)
	}
	return f, nil
}

// run watches all resources until ctx is done.
func (f *apiFollower) run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { f.recorder.run(ctx) })
	for _, i := range f.instances {
		group.Go(func() { i.Run(ctx) })
	}
	for _, m := range f.vms {
		group.Go(func() { m.follower.Run(ctx) })
	}
	if f.clients != nil {
		group.Go(func() { f.clients.run(ctx) })
	}
	group.Wait()
}

// current reports whether all known objects are current.
func (f *apiFollower) current() bool {
	for _, i := range f.instances {
		if !i.Current(gap) {
			return false
		}
	}
	return f.vmsCurrent()
}

// vmsCurrent reports whether the known VirtualMachines are current, in the namespaces in which they can be read.
func (f *apiFollower) vmsCurrent() bool {
	for _, m := range f.vms {
		if !m.unavailable() && !m.follower.Current(gap) {
			return false
		}
	}
	return true
}

// listed reports whether all resources that can be read have been listed.
func (f *apiFollower) listed() bool {
	for _, i := range f.instances {
		if _, synced := i.List(); !synced {
			return false
		}
	}
	for _, m := range f.vms {
		if _, synced := m.follower.List(); !synced && !m.unavailable() {
			return false
		}
	}
	return true
}

func (f *apiFollower) status() []watch.ResourceStatus {
	var list []watch.ResourceStatus
	for _, i := range f.instances {
		list = append(list, i.Status())
	}
	for _, m := range f.vms {
		list = append(list, m.follower.Status())
	}
	return list
}

// followInstances returns a watch of the VirtualMachineInstances of a namespace, or of all namespaces if it is
// empty.
func followInstances(d *directory, client dynamic.Interface, namespace string, log *slog.Logger) *watch.Follower {
	var f *watch.Follower
	f = watch.NewFollower(client, watch.Following{
		Resource: instances, Kind: "VirtualMachineInstance", Namespace: namespace, Selector: d.config.selector,
		Decode: decoder(d.config.network),
		Changed: func(o objects.Object) {
			if o == nil {
				list, _ := f.List()
				d.replaceInstances(namespace, list)
				d.markSynced()
				return
			}
			if _, listed := f.Get(o.GetNamespace(), o.GetName()); listed {
				d.receiveInstance(o)
				return
			}
			// An instance that lost its labels disappears from the watch in the same way, but was not deleted.
			last, ok := o.(*instance)
			d.remove(key{o.GetNamespace(), o.GetName()}, ok && last.Deleted)
		},
	}, log)
	return f
}

// receiveInstance adds or replaces an instance. If it cannot be decoded, its previous state remains.
func (d *directory) receiveInstance(o objects.Object) {
	switch o := o.(type) {
	case *instance:
		d.put(o)
	case *objects.Broken:
		d.log.Error("cannot decode a VirtualMachineInstance; keeping its previous state", "instance", o.Namespace+"/"+o.Name, "err", o.Error)
	}
}

// replaceInstances adds the instances of a list and removes all others of the namespace.
func (d *directory) replaceInstances(namespace string, list []objects.Object) {
	listed := map[key]bool{}
	for _, o := range list {
		listed[key{o.GetNamespace(), o.GetName()}] = true
		d.receiveInstance(o)
	}
	d.mu.RLock()
	var missing []key
	for at, i := range d.instances {
		if !listed[at] && !i.test && (namespace == "" || at.namespace == namespace) {
			missing = append(missing, at)
		}
	}
	d.mu.RUnlock()
	for _, at := range missing {
		d.remove(at, false)
	}
}

// markSynced marks the directory as complete once all resources have been listed.
func (d *directory) markSynced() {
	if !d.follower.listed() {
		return
	}
	d.mu.Lock()
	before := d.known && d.asOf.IsZero()
	d.known, d.asOf = true, time.Time{}
	d.changes++
	n := len(d.instances)
	d.mu.Unlock()
	if !before {
		d.log.Info("VMs are synced", "scope", d.config.String(), "instances", n)
	}
}

// A vmFollower watches the metadata of the VirtualMachines of a namespace.
type vmFollower struct {
	follower   *watch.Follower
	log        *slog.Logger
	markSynced func()

	mu       sync.Mutex
	last     string // the last error
	noAccess bool   // VirtualMachines may not be read, or are not served
}

func followVirtualMachines(d *directory, client dynamic.Interface, namespace string, log *slog.Logger) *vmFollower {
	m := &vmFollower{log: log.With("resource", virtualMachines.GroupResource().String()), markSynced: d.markSynced}
	m.follower = watch.NewFollower(client, watch.Following{
		Resource: virtualMachines, Kind: "VirtualMachine", Namespace: namespace,
		Decode: func(u *unstructured.Unstructured) objects.Object {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID()}}
		},
		Changed: func(o objects.Object) {
			if o == nil {
				list, _ := m.follower.List()
				d.replaceVirtualMachines(namespace, list)
				d.markSynced()
				return
			}
			at := key{o.GetNamespace(), o.GetName()}
			if _, listed := m.follower.Get(at.namespace, at.name); listed {
				d.declare(at)
				return
			}
			d.undeclare(at, true)
		},
		Failed: m.failed,
	}, log)
	return m
}

// replaceVirtualMachines adds the VirtualMachines of a list and removes all others of the namespace.
func (d *directory) replaceVirtualMachines(namespace string, list []objects.Object) {
	listed := map[key]bool{}
	for _, o := range list {
		at := key{o.GetNamespace(), o.GetName()}
		listed[at] = true
		d.declare(at)
	}
	d.mu.RLock()
	var missing []key
	for at, m := range d.vms {
		if m.declared && !listed[at] && (namespace == "" || at.namespace == namespace) {
			missing = append(missing, at)
		}
	}
	d.mu.RUnlock()
	for _, at := range missing {
		d.undeclare(at, false)
	}
}

// failed handles the result of an attempt to list or watch; err is nil after a success. Without the right to read
// VirtualMachines, or without their API, a VM exists only while it runs.
func (m *vmFollower) failed(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	no := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	m.mu.Lock()
	changed, refused := text != m.last, no && !m.noAccess
	m.last, m.noAccess = text, no
	m.mu.Unlock()
	switch {
	case refused:
		m.log.Warn("cannot read VirtualMachines; VMs keep their addresses only while they run",
			"err", err, "remedy", "grant list and watch for virtualmachines")
		m.markSynced()
	case no || !changed:
	case err == nil:
		m.log.Info("watch is open")
	default:
		m.log.Error("watch failed; keeping the previous objects", "err", err)
	}
}

func (m *vmFollower) unavailable() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.noAccess
}

// metadataOnly requests objects without spec and status from an API server.
type metadataOnly struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
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
