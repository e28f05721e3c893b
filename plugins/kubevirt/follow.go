package kubevirt

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	namespaces []string          // of the VMs; an empty one for all
	instances  []*watch.Follower // by namespace, as vms
	vms        []*optionalFollower
	networks   []*optionalFollower
	clients    *testClients // nil for none
	recorder   *recorder
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
	if d.config.testClients != "" {
		f.clients = followTestClients(d, full, log)
	}
	if d.config.withoutVMs {
		return f, nil
	}
	for namespace := range strings.SplitSeq(d.config.namespaces, ",") {
		f.namespaces = append(f.namespaces, namespace)
		f.instances = append(f.instances, followInstances(d, full, namespace, log))
		f.vms = append(f.vms, followVirtualMachines(d, partial, namespace, log))
	}
	for _, namespace := range d.config.networkNamespaces() {
		f.networks = append(f.networks, followNetworks(d, full, namespace, log))
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
	for _, o := range f.optional() {
		group.Go(func() { o.follower.Run(ctx) })
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
	return allCurrent(f.optional())
}

// vmsCurrent reports whether the known VirtualMachines are current, in the namespaces in which they can be read.
func (f *apiFollower) vmsCurrent() bool { return allCurrent(f.vms) }

func allCurrent(list []*optionalFollower) bool {
	for _, o := range list {
		if !o.unavailable() && !o.follower.Current(gap) {
			return false
		}
	}
	return true
}

// optional returns the watches of resources that may be unreadable.
func (f *apiFollower) optional() []*optionalFollower { return slices.Concat(f.vms, f.networks) }

// listed reports whether all resources that can be read have been listed.
func (f *apiFollower) listed() bool {
	for _, i := range f.instances {
		if _, synced := i.List(); !synced {
			return false
		}
	}
	for _, o := range f.optional() {
		if _, synced := o.follower.List(); !synced && !o.unavailable() {
			return false
		}
	}
	return true
}

// restore sets the objects of a snapshot file before the first lists.
func (f *apiFollower) restore(file *fileContent) {
	for n, namespace := range f.namespaces {
		var running, declared []objects.Object
		for _, i := range file.Instances {
			if namespace == "" || namespace == i.Namespace {
				running = append(running, i)
			}
		}
		for _, m := range file.Machines {
			if namespace == "" || namespace == m.Namespace {
				declared = append(declared, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}})
			}
		}
		f.instances[n].Restore(running, file.Kept[instances.Resource])
		f.vms[n].follower.Restore(declared, file.Kept[virtualMachines.Resource])
	}
}

// keptSince returns when objects disappeared from the API server that stay in use, by resource and "namespace/name".
func (f *apiFollower) keptSince() map[string]map[string]time.Time {
	kept := map[string]map[string]time.Time{}
	if f == nil { // in tests of the index
		return kept
	}
	for n := range f.namespaces {
		for resource, since := range map[string]map[string]time.Time{
			instances.Resource: f.instances[n].KeptSince(), virtualMachines.Resource: f.vms[n].follower.KeptSince(),
		} {
			if len(since) > 0 && kept[resource] == nil {
				kept[resource] = map[string]time.Time{}
			}
			maps.Copy(kept[resource], since)
		}
	}
	return kept
}

func (f *apiFollower) status() []watch.ResourceStatus {
	var list []watch.ResourceStatus
	for _, i := range f.instances {
		list = append(list, i.Status())
	}
	for _, o := range f.optional() {
		list = append(list, o.follower.Status())
	}
	return list
}

// followInstances returns a watch of the VirtualMachineInstances of a namespace, or of all namespaces if it is
// empty.
func followInstances(d *directory, client dynamic.Interface, namespace string, log *slog.Logger) *watch.Follower {
	var f *watch.Follower
	f = watch.NewFollower(client, watch.Following{
		Resource: instances, Kind: "VirtualMachineInstance", Namespace: namespace, Selector: d.config.selector,
		Decode: decodeInstance, Keep: watch.DefaultRetention,
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
		if !listed[at] && i.isVM() && (namespace == "" || at.namespace == namespace) {
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
	n, problem := len(d.instances), d.networks.problem()
	d.mu.Unlock()
	if before {
		return
	}
	d.log.Info("VMs are synced", "scope", d.config.String(), "instances", n)
	if problem != "" {
		d.log.Warn("cannot identify the network; NetworkAttachmentDefinitions in other namespaces may not be recognized", "reason", problem)
	}
}

// An optionalFollower watches a resource that may be unreadable: its API is not served, or the right is missing.
type optionalFollower struct {
	follower *watch.Follower
	log      *slog.Logger
	// refusal and remedy are logged if the resource cannot be read.
	refusal, remedy string
	markSynced      func()

	mu       sync.Mutex
	last     string // the last error
	noAccess bool   // reading the resource is forbidden, or the resource is not served
}

// following configures an optionalFollower.
type following struct {
	resource        schema.GroupVersionResource
	kind, namespace string
	decode          func(*unstructured.Unstructured) objects.Object
	// replace is called with the objects of a list, and changed with one object and whether it exists.
	replace func(namespace string, list []objects.Object)
	changed func(o objects.Object, exists bool)
}

// follow sets the watch.
func (o *optionalFollower) follow(d *directory, client dynamic.Interface, f following, log *slog.Logger) {
	o.log, o.markSynced = log.With("resource", f.resource.GroupResource().String(), "namespace", f.namespace), d.markSynced
	o.follower = watch.NewFollower(client, watch.Following{
		Resource: f.resource, Kind: f.kind, Namespace: f.namespace, Decode: f.decode, Keep: watch.DefaultRetention,
		Changed: func(changed objects.Object) {
			if changed == nil {
				list, _ := o.follower.List()
				f.replace(f.namespace, list)
				d.markSynced()
				return
			}
			_, exists := o.follower.Get(changed.GetNamespace(), changed.GetName())
			f.changed(changed, exists)
		},
		Failed: o.failed,
	}, log)
}

// followVirtualMachines returns a watch of the metadata of a namespace's VirtualMachines.
func followVirtualMachines(d *directory, client dynamic.Interface, namespace string, log *slog.Logger) *optionalFollower {
	m := &optionalFollower{
		refusal: "cannot read VirtualMachines; VMs keep their addresses only while they run", remedy: "grant list and watch for virtualmachines",
	}
	m.follow(d, client, following{
		resource: virtualMachines, kind: "VirtualMachine", namespace: namespace,
		decode: func(u *unstructured.Unstructured) objects.Object {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), DeletionTimestamp: u.GetDeletionTimestamp(),
			}}
		},
		replace: d.replaceVirtualMachines,
		changed: func(o objects.Object, exists bool) {
			if at := (key{o.GetNamespace(), o.GetName()}); exists {
				d.declare(at)
			} else {
				// KubeVirt's finalizer announces each deletion. Without it, the whole API may be disappearing.
				last, ok := o.(*metav1.PartialObjectMetadata)
				d.undeclare(at, ok && last.DeletionTimestamp != nil)
			}
		},
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

// failed handles the result of an attempt to list or watch; err is nil after a success.
func (o *optionalFollower) failed(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	no := apierrors.IsForbidden(err) || apierrors.IsNotFound(err)
	o.mu.Lock()
	changed, refused := text != o.last, no && !o.noAccess
	o.last, o.noAccess = text, no
	o.mu.Unlock()
	switch {
	case refused:
		o.log.Warn(o.refusal, "err", err, "remedy", o.remedy)
		o.markSynced()
	case no || !changed:
	case err == nil:
		o.log.Info("watch is open")
	default:
		o.log.Error("watch failed; keeping the previous objects", "err", err)
	}
}

func (o *optionalFollower) unavailable() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.noAccess
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
