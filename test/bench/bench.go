package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// bench is one run of the benchmark.
type bench struct {
	options
	dir     string // for everything that is written
	coredns string // the binary under test
	report  report

	// The CPU of the servers that are measured for throughput, and that of dnsperf.
	// Apart, the two do not take time from each other: the first and the last, which
	// are the least likely to be one core. Empty where there is but one.
	serverCPU, loadCPU string

	management *lab.ControlPlane
	applied    int // hosted clusters in management
}

// run measures everything and writes the tables to out.
func run(ctx context.Context, opts options, out io.Writer) (err error) {
	for _, tool := range []string{"dnsperf", "taskset", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing; get it with: sudo make deps", tool)
		}
	}
	dir, err := os.MkdirTemp("", "oooi-bench-")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{options: opts, dir: dir, coredns: filepath.Join(dir, "coredns")}
	if cpus, err := measure.AllowedCPUs(); err != nil {
		return err
	} else if len(cpus) > 1 {
		b.serverCPU, b.loadCPU = strconv.Itoa(cpus[0]), strconv.Itoa(cpus[len(cpus)-1])
	}
	b.report = newReport(opts, b.serverCPU != "")
	if err := build(ctx, b.coredns); err != nil {
		return err
	}
	b.management, err = lab.Start(ctx, lab.Config{Name: "bench", Dir: filepath.Join(dir, "management"), ServiceCIDR: serviceCIDR, Logf: progress})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.management.Stop()) }()
	if err := b.measure(ctx); err != nil {
		return err
	}
	_, err = io.WriteString(out, b.report.markdown())
	return err
}

// build makes the binary that is measured, as make build makes ours.
func build(ctx context.Context, path string) error {
	root, err := lab.Root()
	if err != nil {
		return err
	}
	progress("building CoreDNS with the plugins to compare")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./test/bench/coredns")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building CoreDNS: %w\n%s", err, said)
	}
	return nil
}

// measure runs the stages: no hosted cluster, each size in the API server, the
// peers and the changes at the largest, and the size that only a folder has.
func (b *bench) measure(ctx context.Context) error {
	if err := b.management.InstallCRDs(ctx, lab.HyperShift, lab.OpenShiftRoute, lab.Oooi); err != nil {
		return err
	}
	if err := b.management.ApplyYAML(ctx, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)); err != nil {
		return err
	}
	floor, err := b.startFloor(ctx)
	if err != nil {
		return err
	}
	defer floor.stop()
	if err := b.measureNone(ctx); err != nil {
		return err
	}
	for i, n := range b.sizes {
		if err := b.grow(ctx, n); err != nil {
			return err
		}
		if err := b.measureSize(ctx, n, floor, i == len(b.sizes)-1); err != nil {
			return fmt.Errorf("with %d hosted clusters: %w", n, err)
		}
	}
	if b.direct > 0 {
		if err := b.measureDirect(ctx, floor); err != nil {
			return fmt.Errorf("with %d hosted clusters in a folder: %w", b.direct, err)
		}
	}
	return nil
}

// measureNone reads the memory of hcpviews without a hosted cluster, at rest and
// after queries, which the floor behind it answers.
func (b *bench) measureNone(ctx context.Context) error {
	all := sharing(questions(b.sizes[len(b.sizes)-1], fromPod), floorAddress)
	l, err := b.newLoad("none", loopback, all)
	if err != nil {
		return err
	}
	s, err := b.start(ctx, "none", b.serverCPU, b.viewsOfAPI()+floorBlock(), client{source: loopback, anyOwner: true}, all[0])
	if err != nil {
		return err
	}
	defer s.stop()
	rest, err := b.memoryAtRest(ctx, s)
	if err != nil {
		return err
	}
	used, err := b.memoryAfterLoad(ctx, s, l)
	if err != nil {
		return err
	}
	b.report.baseline = memory{rest: rest, used: used}
	return nil
}

// measureSize compares hcpviews with the floor, at one size in the API server; at
// the last size also with everything else.
func (b *bench) measureSize(ctx context.Context, n int, floor *server, last bool) error {
	pods, err := b.startViews(ctx, fmt.Sprintf("hcpviews-%d", n), b.viewsOfAPI(), n)
	if err != nil {
		return err
	}
	defer pods.stop()
	m := memory{clusters: n, source: sourceAPI}
	if err := b.measurePods(ctx, pods, floor, &m); err != nil {
		return err
	}
	if !last {
		b.report.memory = append(b.report.memory, m)
		return nil
	}
	vlan := contender{name: "hcpviews", view: "vlan", server: pods.server, client: client{source: cluster(0).onVLAN(virtualHost).String()}}
	if vlan.load, err = b.newLoad("vlan", vlan.client.source, questions(1, fromVLAN)); err != nil {
		return err
	}
	if err := b.compare(ctx, n, vlan, vlan.floor(floor), targetFloor); err != nil {
		return err
	}
	if err := b.compareApps(ctx, n, floor); err != nil {
		return err
	}
	if err := b.compareFlat(ctx, n, pods); err != nil {
		return err
	}
	if err := b.comparePeers(ctx, n, pods); err != nil {
		return err
	}
	if m.changed, err = b.measureChanges(ctx, n); err != nil {
		return err
	}
	b.report.memory = append(b.report.memory, m)
	return nil
}

// measurePods compares a server, asked by pods, with the floor, and reads its memory before
// and after.
func (b *bench) measurePods(ctx context.Context, pods contender, floor *server, m *memory) (err error) {
	if m.rest, err = b.memoryAtRest(ctx, pods.server); err != nil {
		return err
	}
	if err := b.compare(ctx, m.clusters, pods, pods.floor(floor), targetFloor); err != nil {
		return err
	}
	m.used, err = b.memoryAfterLoad(ctx, pods.server, pods.load)
	return err
}

// compareApps compares hcpapps with the floor.
func (b *bench) compareApps(ctx context.Context, n int, floor *server) error {
	apps, err := b.startApps(ctx, n)
	if err != nil {
		return err
	}
	defer apps.stop()
	return b.compare(ctx, n, apps, apps.floor(floor), targetFloor)
}

// measureDirect compares a size that would take the API server too long to fill.
func (b *bench) measureDirect(ctx context.Context, floor *server) error {
	n := b.direct
	block, err := b.viewsOfFolder(n)
	if err != nil {
		return err
	}
	pods, err := b.startViews(ctx, fmt.Sprintf("folder-%d", n), block, n)
	if err != nil {
		return err
	}
	defer pods.stop()
	m := memory{clusters: n, source: sourceFolder}
	if err := b.measurePods(ctx, pods, floor, &m); err != nil {
		return err
	}
	b.report.memory = append(b.report.memory, m)
	return b.compareFlat(ctx, n, pods)
}

// compareFlat compares many hosted clusters with one.
func (b *bench) compareFlat(ctx context.Context, n int, many contender) error {
	block, err := b.viewsOfFolder(1)
	if err != nil {
		return err
	}
	one, err := b.startViews(ctx, "folder-1", block, 1)
	if err != nil {
		return err
	}
	defer one.stop()
	one.name = "hcpviews with 1"
	return b.compare(ctx, n, many, one, targetFlat)
}

// grow brings the API server to n hosted clusters.
func (b *bench) grow(ctx context.Context, n int) error {
	progress("filling the API server: %d hosted clusters, Infras and Services", n)
	started := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan cluster)
	var group sync.WaitGroup
	for range 2 * runtime.NumCPU() {
		group.Go(func() {
			for c := range next {
				for _, object := range c.objects() {
					if err := b.management.ApplyYAML(ctx, []byte(object)); err != nil {
						cancel(err)
					}
				}
			}
		})
	}
	for ; b.applied < n && ctx.Err() == nil; b.applied++ {
		next <- cluster(b.applied)
	}
	close(next)
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("filling the API server: %w", err)
	}
	progress("filled in %.1f s", time.Since(started).Seconds())
	return nil
}

// memoryAtRest returns a server's memory a while after its last work.
func (b *bench) memoryAtRest(ctx context.Context, s *server) (int, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(b.settle):
		return s.memory()
	}
}

// memoryAfterLoad returns a server's memory right after queries.
func (b *bench) memoryAfterLoad(ctx context.Context, s *server, l load) (int, error) {
	if _, err := b.drive(ctx, s, l, b.slice); err != nil {
		return 0, err
	}
	return s.memory()
}
