package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// bench is one run of the DNS benchmark.
type bench struct {
	options
	*measure.Stage

	coredns string // the binary under test
	report  report

	// serverCPU is the CPU of the servers whose throughput is measured, loadCPU that of dnsperf, so that neither takes
	// CPU time from the other. Both are nil if only one CPU is available.
	serverCPU, loadCPU *int

	applied int // number of hosted clusters in the API server
}

// run measures everything and writes the tables to out.
func run(ctx context.Context, opts options, out io.Writer) (err error) {
	if err := measure.Need("dnsperf", "taskset", "go"); err != nil {
		return err
	}
	b := &bench{options: opts}
	if b.serverCPU, b.loadCPU, err = measure.SeparateCPUs(); err != nil {
		return err
	}
	b.report = newReport(opts, b.serverCPU != nil)
	progress("building CoreDNS with the plugins to compare")
	if b.coredns, err = lab.BuildStatic(ctx, "./test/bench/coredns"); err != nil {
		return err
	}
	if b.Stage, err = measure.NewStage(ctx, "", lab.Config{ServiceCIDR: serviceCIDR, Logf: progress}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.measure(ctx); err != nil {
		return err
	}
	_, err = io.WriteString(out, b.report.markdown())
	return err
}

// measure runs all measurements: without hosted clusters, with each size in the API server, the stock plugins and the
// changes at the largest size, and the size that is read from a folder.
func (b *bench) measure(ctx context.Context) error {
	if err := b.Management.InstallCRDs(ctx, lab.HyperShift, lab.OpenShiftRoute, lab.Oooi); err != nil {
		return err
	}
	if err := b.Management.ApplyYAML(ctx, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"}}`)); err != nil {
		return err
	}
	floor, err := b.startFloor(ctx)
	if err != nil {
		return err
	}
	defer floor.Stop()
	if err := b.measureBaseline(ctx); err != nil {
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
	if err := b.measureNames(ctx, floor); err != nil {
		return fmt.Errorf("with names of %d VMs: %w", b.vms, err)
	}
	if b.direct > 0 {
		if err := b.measureDirect(ctx, floor); err != nil {
			return fmt.Errorf("with %d hosted clusters in a folder: %w", b.direct, err)
		}
	}
	return nil
}

// measureBaseline measures the memory of hcpviews without hosted clusters, at rest and after queries, which noop behind
// it answers.
func (b *bench) measureBaseline(ctx context.Context) error {
	all := withAnswer(questions(b.sizes[len(b.sizes)-1], fromPod), floorAddress)
	l, err := b.newLoad("none", loopback, all)
	if err != nil {
		return err
	}
	s, err := b.start(ctx, "none", b.serverCPU, b.viewsOfAPI()+floorBlock(), client{source: loopback, anyOwner: true}, all[0])
	if err != nil {
		return err
	}
	defer s.Stop()
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

// measureSize compares hcpviews with noop at one size in the API server, and at the last size with all other servers.
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
	vlan := contender{name: "hcpviews", view: "vlan", server: pods.server, client: client{source: cluster(0).onVLAN(vmHost).String()}}
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
	return b.measureInfraPod(ctx, n)
}

// measureInfraPod measures the memory of the DNS pod of one Infra among n, also after changes of that Infra.
func (b *bench) measureInfraPod(ctx context.Context, n int) error {
	list := fromPod(0)
	s, err := b.start(ctx, "infra", b.serverCPU, b.infraPod(0), client{source: loopback}, list[0])
	if err != nil {
		return err
	}
	defer s.Stop()
	m := memory{clusters: n, source: sourceInfra}
	if m.rest, err = b.memoryAtRest(ctx, s); err != nil {
		return err
	}
	l, err := b.newLoad("infra", loopback, list)
	if err != nil {
		return err
	}
	if m.used, err = b.memoryAfterLoad(ctx, s, l); err != nil {
		return err
	}
	if err := b.changeRepeatedly(ctx, 0); err != nil {
		return err
	}
	if m.changed, err = b.memoryAtRest(ctx, s); err != nil {
		return err
	}
	b.report.memory = append(b.report.memory, m)
	return nil
}

// measurePods compares a server with noop, with queries from pods, and measures its memory before and after.
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

// compareApps compares hcpapps with noop.
func (b *bench) compareApps(ctx context.Context, n int, floor *server) error {
	apps, err := b.startApps(ctx, n)
	if err != nil {
		return err
	}
	defer apps.stop()
	return b.compare(ctx, n, apps, apps.floor(floor), targetApps)
}

// measureDirect measures with hosted clusters from a folder, because filling the API server with as many takes too
// long.
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

// grow adds hosted clusters to the API server until it has n.
func (b *bench) grow(ctx context.Context, n int) error {
	progress("filling the API server: %d hosted clusters, Infras and Services", n)
	started := time.Now()
	err := measure.Fill(ctx, b.applied, n, func(ctx context.Context, number int) error {
		for _, object := range cluster(number).objects() {
			if err := b.Management.ApplyYAML(ctx, []byte(object)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.applied = n
	progress("filled in %.1f s", time.Since(started).Seconds())
	return nil
}

// memoryAtRest returns a server's resident memory in bytes, after the settle time.
func (b *bench) memoryAtRest(ctx context.Context, s *server) (int, error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(b.settle):
		return s.memory()
	}
}

// memoryAfterLoad returns a server's resident memory in bytes, immediately after queries.
func (b *bench) memoryAfterLoad(ctx context.Context, s *server, l load) (int, error) {
	if _, err := b.drive(ctx, s, l, b.slice); err != nil {
		return 0, err
	}
	return s.memory()
}
