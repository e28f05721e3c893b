package watch

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/snapshotfile"
	"github.com/densityops/oooi/internal/subscribers"
)

// maxPause is the longest pause after a snapshot. Changes within the pause are combined; the first change after it
// builds a snapshot immediately.
const maxPause = 20 * time.Millisecond

// pauseFactor is how many times longer than the last build the pause is, so that building takes at most a third of a CPU.
const pauseFactor = 2

// Config configures a Store. Users with equal Configs can share one Store.
type Config struct {
	// Kubeconfig is a kubeconfig file; empty for the pod's own ServiceAccount.
	Kubeconfig string
	// Context is the context to use in Kubeconfig; empty for its current one.
	Context string
	// Manifests is a directory of YAML or JSON files to read instead of an API server. If it is set, Kubeconfig and
	// Context are ignored.
	Manifests string
	// Scope limits the objects in the snapshot.
	Scope model.Scope
	// Apps configures the sources of apps addresses; nil for a snapshot without apps addresses.
	Apps *model.AppsOptions
	// Proxies reports whether the snapshot includes ProxyServers.
	Proxies bool
	// Backends reports whether the names of the ProxyServers' backends are published.
	Backends bool
	// Endpoints reports whether the Store has the EndpointSlices of the ProxyServers' backends. With Manifests it
	// always has them. Endpoints requires Proxies.
	Endpoints bool
	// Statuses reports whether the Store has the statuses of Infras and ProxyServers. It requires an API server.
	Statuses bool
	// Networks reports whether NetworkAttachmentDefinitions are read, to find Infras on the same network. With Manifests
	// they always are.
	Networks bool
	// Names limits the names that are published.
	Names model.NameRules
	// Leases are the Infras, "namespace/name", whose DHCP leases are read, or model.AllLeases.
	Leases []string
	// Retention is how long objects stay in use that disappear from the API server without evidence that they were deleted on
	// purpose; 0 for DefaultRetention.
	Retention time.Duration
	// File is the snapshot file, which is read at the start and written after changes; empty for none.
	File string
}

func (c Config) options() model.Options {
	return model.Options{Scope: c.Scope, Apps: c.Apps, Proxies: c.Proxies, Backends: c.Backends, Names: c.Names, Leases: c.Leases}
}

// String describes the Config in one line: the source ("in-cluster", a kubeconfig file or a directory) and, if they
// are set, the context, the HostedClusters and Infras in scope, Names, Apps and File.
func (c Config) String() string {
	words := []string{cmp.Or(c.Manifests, c.Kubeconfig, "in-cluster")}
	add := func(name string, values ...string) {
		for _, value := range values {
			if value != "" {
				words = append(words, name, value)
			}
		}
	}
	add("context", c.Context)
	add("hostedcluster", c.Scope.HostedClusters...)
	add("infra", c.Scope.Infras...)
	add("proxyserver", c.Scope.ProxyServers...)
	add("services in", c.Scope.ServiceNamespaces...)
	add("management", c.Names.Management...)
	add("domains", c.Names.Allowed...)
	add("leases", c.Leases...)
	if apps := c.Apps; apps != nil {
		words = append(words, "apps")
		for _, source := range apps.Sources {
			add("source", string(source))
		}
		add("service", apps.Service)
		add("selector", labels.Set(apps.Selector).String())
		for _, prefix := range apps.Allow {
			add("allow", prefix.String())
		}
		add("credentials", apps.Credentials)
	}
	add("kept in", c.File)
	return strings.Join(words, " ")
}

// Store watches the objects of a Config and keeps their snapshot up to date. It is safe for concurrent use.
type Store struct {
	config  Config
	log     *slog.Logger
	started time.Time
	source  source
	tables  tables
	hosted  *hostedServices // nil if objects are read from a directory
	file    *snapshotfile.File
	dirty   chan struct{}

	snapshot atomic.Pointer[model.Snapshot]
	builder  *model.Builder // of snapshots of the source's objects; nil before the first

	mu             sync.Mutex
	objects        *model.Objects // of the snapshot file; nil without one
	fromSource     bool           // whether snapshot was built from the source and not from the file
	fileWritten    time.Time      // when the file was written that snapshot was built from
	builds         int
	changes        uint64 // number of changes to the source's objects
	subscribers    subscribers.Set[func()]
	endpoints      subscribers.Set[func(service string)]
	changedObjects subscribers.Set[func(objects.Object)]
}

// Open returns a Store. It reads the snapshot file, if it exists, and does not connect to the API server until Run.
// It logs and ignores an unusable snapshot file. It returns an error if the kubeconfig, or without one the pod's
// ServiceAccount, cannot be used.
func Open(config Config, log *slog.Logger) (*Store, error) {
	s := &Store{config: config, log: log, started: time.Now(), dirty: make(chan struct{}, 1)}
	s.file = s.snapshotFile()
	if config.Manifests != "" {
		s.watchDirectory(config.Manifests)
	} else {
		client, err := kubeconfig.RESTConfig(config.Kubeconfig, config.Context)
		if err != nil {
			return nil, err
		}
		if err := s.watchAPI(client); err != nil {
			return nil, err
		}
	}
	s.load()
	return s, nil
}

// Run watches the objects until ctx is done. When it returns, all watches have ended, and the last changes have
// been written to the snapshot file. It must be called only once.
func (s *Store) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { s.source.run(ctx) })
	group.Go(func() { s.file.Run(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.dirty:
			started := time.Now()
			s.build(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(s.pause(time.Since(started))):
			}
		}
	}
	group.Wait()
	if s.hosted != nil {
		s.hosted.group.Wait()
	}
}

// pause returns the pause after a build, including its subscribers. With proxies it is always the longest, because every
// snapshot may change the configuration of Envoys.
func (s *Store) pause(build time.Duration) time.Duration {
	if s.config.Proxies {
		return maxPause
	}
	return min(maxPause, pauseFactor*build)
}

// markDirty requests a new snapshot. It never blocks.
func (s *Store) markDirty() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// notify calls the subscribers of objects, with nil if any of them may have changed.
func (s *Store) notify(o objects.Object) {
	s.mu.Lock()
	fromSource := s.fromSource
	s.changes++
	s.mu.Unlock()
	if !fromSource {
		return // subscribers read all of them with the first snapshot
	}
	service := ""
	if slice, ok := o.(*objects.EndpointSlice); ok {
		service = slice.Service()
	}
	for _, f := range s.endpoints.List() {
		f(service)
	}
	for _, f := range s.changedObjects.List() {
		f(o)
	}
}

// EndpointSlices returns the EndpointSlices of a Service, "namespace/name", in no order. Until all resources have
// been listed, it returns the snapshot file's EndpointSlices, if any. The caller must not modify the result.
func (s *Store) EndpointSlices(service string) []*objects.EndpointSlice {
	s.mu.Lock()
	fromSource, kept := s.fromSource, s.objects
	s.mu.Unlock()
	if fromSource {
		return s.tables.endpointSlices(service)
	}
	if kept == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(kept.EndpointSlices), func(o *objects.EndpointSlice) bool { return o.Service() != service })
}

// SubscribeEndpoints calls f with each Service, "namespace/name", whose EndpointSlices changed, or with "" if any
// Service's may have changed. It does not call f before the first snapshot from the source. Goroutines that read
// changes call f, so f must be fast and safe for concurrent use. cancel ends the subscription; a call may still be
// running when it returns.
func (s *Store) SubscribeEndpoints(f func(service string)) (cancel func()) {
	return s.endpoints.Add(f)
}

// Infra returns the last known version of an Infra, "namespace/name", with its status, resourceVersion and generation.
// It returns nil if the Infra does not exist, and nil and true if it exists but cannot be decoded. It may be newer than
// the snapshot. The caller must not modify it. Infra requires Config.Statuses.
func (s *Store) Infra(name string) (infra *v1alpha1.Infra, exists bool) {
	o := s.tables.object(infraResource, name)
	infra, _ = o.(*v1alpha1.Infra)
	return infra, o != nil
}

// ProxyServer returns the last known version of a ProxyServer as Infra does, or nil if none was decoded.
func (s *Store) ProxyServer(name string) *v1alpha1.ProxyServer {
	p, _ := s.tables.object(proxyServerResource, name).(*v1alpha1.ProxyServer)
	return p
}

// SubscribeObjects calls f with each Infra and ProxyServer that was added, changed or deleted, or with nil if any of
// them may have changed. As with SubscribeEndpoints, it does not call f before the first snapshot, and f must be fast
// and safe for concurrent use. cancel ends the subscription; a call may still be running when it returns.
// SubscribeObjects requires Config.Statuses.
func (s *Store) SubscribeObjects(f func(objects.Object)) (cancel func()) {
	return s.changedObjects.Add(f)
}

// build replaces the snapshot by one of the source's objects, once every resource was listed.
func (s *Store) build(ctx context.Context) {
	changes, complete := s.tables.changes()
	if !complete || s.builder != nil && len(changes) == 0 {
		return
	}
	if s.builder == nil {
		s.builder = model.NewBuilder(s.config.options(), s.Snapshot())
	}
	snapshot := s.builder.Update(changes)
	s.logProblems(snapshot)
	s.snapshot.Store(snapshot)
	if s.hosted != nil {
		s.hosted.follow(ctx, snapshot)
	}

	s.mu.Lock()
	s.objects, s.fromSource = nil, true
	s.builds++
	s.changes++
	s.mu.Unlock()
	for _, f := range s.subscribers.List() {
		f()
	}
}

// logProblems logs the problems that are new or resolved since the previous snapshot.
func (s *Store) logProblems(now *model.Snapshot) {
	if s.builds == 0 {
		s.log.Info("synced", "clusters", len(now.Clusters), "infras", len(now.Infras), "names", len(now.Pod().Names))
	}
	var problems []model.Problem
	if before := s.snapshot.Load(); before != nil {
		problems = before.Problems
	}
	if len(problems) == len(now.Problems) && (len(problems) == 0 || &problems[0] == &now.Problems[0]) {
		return // shared by both snapshots
	}
	known := make(map[model.Problem]bool, len(problems))
	for _, p := range problems {
		known[p] = true
	}
	for _, p := range now.Problems {
		if !known[p] {
			s.log.Warn(p.Message, "object", p.Object.String(), "reason", string(p.Reason))
		}
		delete(known, p)
	}
	for p := range known {
		s.log.Info("resolved: "+p.Message, "object", p.Object.String(), "reason", string(p.Reason))
	}
}

// Snapshot returns the current snapshot; nil before the first.
func (s *Store) Snapshot() *model.Snapshot { return s.snapshot.Load() }

// Subscribe calls f after every new snapshot from the source, one call at a time. The goroutine that builds snapshots
// calls f, so f must be fast. cancel ends the subscription; a call may still be running when it returns.
func (s *Store) Subscribe(f func()) (cancel func()) {
	return s.subscribers.Add(f)
}

// Status is the state of a Store.
type Status struct {
	// At is when the Status was determined.
	At time.Time `json:"at"`
	// Started is when the Store was opened.
	Started time.Time `json:"started"`
	// Synced reports whether the snapshot was built from the source, and not from the snapshot file.
	Synced bool `json:"synced"`
	// Since is the last time at which the snapshot was known to be current. It is At while every watch is connected
	// or its resource is missing, and zero if there is no snapshot or the time is unknown.
	Since time.Time `json:"since,omitzero"`
	// Builds is the number of snapshots built from the source.
	Builds int `json:"builds"`
	// SnapshotFailure is the error of the last write of the snapshot file, empty unless it failed.
	SnapshotFailure string `json:"snapshotFailure,omitempty"`
	// Resources are the states of the watches.
	Resources []ResourceStatus `json:"resources"`
}

// Age returns the age of the data in use: the time from Since to At. It is 0 while every watch is connected or its
// resource is missing, and if Since is zero.
func (s Status) Age() time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return max(0, s.At.Sub(s.Since))
}

// Status returns the current state of the Store.
func (s *Store) Status() Status {
	s.mu.Lock()
	status := Status{At: time.Now(), Started: s.started, Synced: s.fromSource, Since: s.fileWritten, Builds: s.builds, SnapshotFailure: s.file.Failure()}
	s.mu.Unlock()
	status.Resources = s.source.status()
	if !status.Synced {
		return status
	}
	status.Since = status.At
	for _, r := range status.Resources {
		if !r.Connected && !r.Missing && r.LastSeen.Before(status.Since) {
			status.Since = r.LastSeen
		}
	}
	return status
}
