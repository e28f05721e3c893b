package watch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/densityops/oooi/internal/atomicfile"
	"github.com/densityops/oooi/internal/kubeconfig"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/internal/subscribers"
)

// holdOff is for how long changes are gathered after a snapshot was made. The
// first change after a quiet time is served at once.
const holdOff = 20 * time.Millisecond

// Config says what a Store follows. Two equal Configs mean the same store.
type Config struct {
	// Kubeconfig is a kubeconfig file; empty for the pod's own service account.
	Kubeconfig string
	// Context is the context to use in Kubeconfig; empty for its current one.
	Context string
	// Manifests is a folder of YAML or JSON files to read in place of an API server.
	Manifests string
	// Scope narrows what is seen.
	Scope model.Scope
	// Apps asks for the addresses of applications; nil for none.
	Apps *model.AppsOptions
	// Proxies asks for ProxyServers, with the EndpointSlices behind them.
	Proxies bool
	// Names limits what is published.
	Names model.NameRules
	// File keeps the objects across a restart; empty for none.
	File string
}

func (c Config) options() model.Options {
	return model.Options{Scope: c.Scope, Apps: c.Apps, Proxies: c.Proxies, Names: c.Names}
}

// String names what is followed, on one line: "in-cluster", or the file or folder,
// with its scope.
func (c Config) String() string {
	words := []string{cmp.Or(c.Manifests, c.Kubeconfig, "in-cluster")}
	if c.Context != "" {
		words = append(words, "context", c.Context)
	}
	for _, object := range c.Scope.HostedClusters {
		words = append(words, "hostedcluster", object)
	}
	for _, object := range c.Scope.Infras {
		words = append(words, "infra", object)
	}
	for _, domain := range c.Names.Management {
		words = append(words, "management", domain)
	}
	for _, domain := range c.Names.Allowed {
		words = append(words, "domains", domain)
	}
	if c.Apps != nil {
		words = append(words, c.Apps.String())
	}
	if c.File != "" {
		words = append(words, "kept in", c.File)
	}
	return strings.Join(words, " ")
}

// Store follows the objects of a Config and keeps the snapshot that they make. All
// methods are safe for concurrent use.
type Store struct {
	config Config
	log    *slog.Logger
	source source
	dirty  chan struct{}

	snapshot atomic.Pointer[model.Snapshot]
	builder  *model.Builder
	// The addresses of applications, and the Services found by labels, that were good last.
	// Read and written by build alone.
	lastGood     map[string][]netip.Addr
	lastServices map[string]string

	mu          sync.Mutex
	objects     *model.Objects // what snapshot was made from
	live        bool           // snapshot was made from the source, not from the file
	asOf        time.Time      // when the file was written that snapshot was made from
	builds      int
	slices      int // changes of EndpointSlices
	subscribers subscribers.Set[func()]
	endpoints   subscribers.Set[func(service string)]
}

// Open makes a Store. Its file is read at once, if there is one; nothing else
// happens until Run.
func Open(config Config, log *slog.Logger) (*Store, error) {
	s := &Store{
		config: config, log: log, dirty: make(chan struct{}, 1),
		builder: model.NewBuilder(config.options()),
	}
	if config.Manifests != "" {
		s.source = newDirectorySource(config.Manifests, config.options(), log)
	} else {
		client, err := RESTConfig(config)
		if err != nil {
			return nil, err
		}
		if s.source, err = newAPISource(client, config.options(), log); err != nil {
			return nil, err
		}
	}
	s.load()
	return s, nil
}

// RESTConfig returns a client configuration for the API server that a Config names.
func RESTConfig(config Config) (*rest.Config, error) {
	if config.Kubeconfig == "" {
		client, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("not running in a pod; specify a kubeconfig file or a folder of manifests")
		}
		if err != nil {
			return nil, fmt.Errorf("reading the pod's service account: %w", err)
		}
		kubeconfig.SetDial(client, "")
		return client, nil
	}
	client, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: config.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: config.Context},
	).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", config.Kubeconfig, err)
	}
	kubeconfig.SetDial(client, "")
	return client, nil
}

// load makes a first snapshot from the file. A file that cannot be used costs the
// bridge over an outage, nothing else.
func (s *Store) load() {
	if s.config.File == "" {
		return
	}
	saved, err := readFile(s.config.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		atomicfile.SetAside(s.log, s.config.File, err)
		return
	}
	s.objects, s.asOf = saved.Objects, saved.Written
	s.lastGood, s.lastServices = saved.Objects.LastGood, saved.Objects.LastServices
	s.snapshot.Store(s.builder.Build(saved.Objects))
	s.log.Info("answering from the snapshot file until synced", "file", s.config.File, "written", saved.Written.Format(time.RFC3339))
}

// Run follows the objects until the context ends.
func (s *Store) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { s.source.run(ctx, s.touch, s.touchEndpoints) })
	if s.config.File != "" {
		group.Go(func() { s.keepFile(ctx) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.dirty:
			s.build()
			select {
			case <-ctx.Done():
			case <-time.After(holdOff):
			}
		}
	}
	group.Wait()
	s.source.wait()
}

// touch notes that something has changed. It never blocks.
func (s *Store) touch() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// touchEndpoints tells of a changed EndpointSlice, or with nil of a change of many.
func (s *Store) touchEndpoints(slice *objects.EndpointSlice) {
	s.mu.Lock()
	live := s.live
	s.slices++
	s.mu.Unlock()
	if !live {
		return // all are read with the first snapshot
	}
	service := ""
	if slice != nil {
		service = slice.Service()
	}
	for _, f := range s.endpoints.List() {
		f(service)
	}
}

// version is another one after every change.
func (s *Store) version() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builds + s.slices
}

// known returns the objects for the file, once there are any.
func (s *Store) known() *model.Objects {
	s.mu.Lock()
	known := *s.objects
	s.mu.Unlock()
	if s.config.Proxies { // they change without a snapshot
		now, _ := s.source.objects()
		known.EndpointSlices = now.EndpointSlices
	}
	return &known
}

// EndpointSlices returns those of a Service, "namespace/name", in no order.
func (s *Store) EndpointSlices(service string) []*objects.EndpointSlice {
	s.mu.Lock()
	live, kept := s.live, s.objects
	s.mu.Unlock()
	if live {
		return s.source.endpointSlices(service)
	}
	if kept == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(kept.EndpointSlices), func(o *objects.EndpointSlice) bool { return o.Service() != service })
}

// SubscribeEndpoints calls f, which must be quick, with each Service whose EndpointSlices
// have changed, from the goroutine that has read it, or with "" when any of them may have
// changed. The returned function ends it; a call may still be under way when that returns.
func (s *Store) SubscribeEndpoints(f func(service string)) (cancel func()) {
	return s.endpoints.Add(f)
}

// build swaps in the snapshot of what the source knows, once it knows everything.
func (s *Store) build() {
	all, complete := s.source.objects()
	if !complete {
		return
	}
	all.LastGood, all.LastServices = s.lastGood, s.lastServices
	snapshot := s.builder.Build(all)
	s.reportChanges(snapshot)
	s.snapshot.Store(snapshot)
	s.source.follow(snapshot)
	s.lastGood, s.lastServices = snapshot.LastGood(), snapshot.LastServices()
	kept := *all
	kept.LastGood, kept.LastServices = s.lastGood, s.lastServices

	s.mu.Lock()
	s.objects, s.live = &kept, true
	s.builds++
	s.mu.Unlock()
	for _, f := range s.subscribers.List() {
		f()
	}
}

// reportChanges logs the problems that were not there before, once each.
func (s *Store) reportChanges(now *model.Snapshot) {
	known := map[model.Problem]bool{}
	if before := s.snapshot.Load(); before != nil {
		for _, p := range before.Problems {
			known[p] = true
		}
	}
	if s.builds == 0 {
		s.log.Info("synced", "clusters", len(now.Clusters), "infras", len(now.Infras), "names", len(now.Pod.Names))
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

// Snapshot returns the present snapshot, or nil when nothing is known yet.
func (s *Store) Snapshot() *model.Snapshot { return s.snapshot.Load() }

// Subscribe calls f after every snapshot made from now on, one call at a time, from
// the goroutine that made it: f must be quick. The returned function ends it; a
// call may still be under way when that returns.
func (s *Store) Subscribe(f func()) (cancel func()) {
	return s.subscribers.Add(f)
}

// Status tells how a Store stands, at one moment.
type Status struct {
	// At is that moment.
	At time.Time `json:"at"`
	// Synced: the snapshot was made from the source itself.
	Synced bool `json:"synced"`
	// Since is when the source was last known to be followed without a gap: now, when
	// it is followed; zero, when nothing is known.
	Since time.Time `json:"since,omitzero"`
	// Builds counts the snapshots made from the source.
	Builds int `json:"builds"`
	// Resources tells how each watch stands.
	Resources []ResourceStatus `json:"resources"`
}

// Age returns how old the knowledge is that answers are given from: 0 while every
// watch is connected.
func (s Status) Age() time.Duration {
	if s.Since.IsZero() {
		return 0
	}
	return max(0, s.At.Sub(s.Since))
}

// Status returns how the store stands now.
func (s *Store) Status() Status {
	s.mu.Lock()
	status := Status{At: time.Now(), Synced: s.live, Since: s.asOf, Builds: s.builds}
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
