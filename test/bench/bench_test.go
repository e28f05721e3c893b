// Package bench measures oooi's daemons as real processes, compares them with other programs that do the same, and compares
// the results with the targets in docs/reference/measurements.md.
//
// Each test is one part: TestDNS, TestProxy, TestEgress and TestDHCP. It checks each server's responses before it measures the server.
// Without -size it runs at a size at which the figures are meaningless.
package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// A size has the numbers of objects and measurements.
type size struct {
	rounds   int           // of each comparison; each measures every side for one slice
	slice    time.Duration // duration of a slice
	clusters []int         // numbers of hosted clusters, ascending
	vms      int           // number of VMs whose names one Infra publishes
	routes   []int         // numbers of a proxy's routes, ascending
	names    []int         // numbers of listed egress names, ascending
	changes  int           // number of changes of each kind
	starts   int           // number of starts of Envoy, with the most routes
	settle   time.Duration // time until a server is at rest
	machines int           // number of VMs that DHCP serves
}

var sizes = map[string]size{
	"full":  {60, 200 * time.Millisecond, []int{1, 100, 1000}, 1000, []int{1000, 5000}, []int{1, 100, 1000}, 300, 9, 5 * time.Second, 10000},
	"quick": {12, 100 * time.Millisecond, []int{1, 100}, 1000, []int{100, 1000}, []int{1, 100, 1000}, 60, 3, time.Second, 5000},
	"tiny":  {2, 50 * time.Millisecond, []int{1, 3}, 7, []int{3, 6}, []int{1, 3}, 3, 2, 100 * time.Millisecond, 1000},
}

var sizeName = flag.String("size", "tiny", "full, quick or tiny; the figures of tiny are meaningless")

// network is where all parts run, because API servers reject loopback addresses of endpoints. Its range is reserved for
// benchmarks (RFC 2544).
var network = lab.Network{
	Ranges: []string{"198.18.0.0/15"}, Sources: []string{"api", "internal", "plugins", "corednsbuild", "coredhcpbuild", "xdsd"}, Prepare: prepare,
}

func TestMain(m *testing.M) {
	flag.Parse()
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

var crds = []lab.CRDSet{lab.HyperShift, lab.OpenShiftRoute, lab.Oooi, lab.KubeVirt, lab.KubeVirtMachines}

// The measured programs, built as make build does, without the race detector.
const coredns, xdsd, coredhcp = "./test/bench/coredns", "./xdsd", "./coredhcpbuild"

func enabled() bool { return lab.Long() || *sizeName != "tiny" }

// prepare builds and downloads what is not possible in a network namespace.
func prepare(ctx context.Context) error {
	if !enabled() {
		return nil
	}
	_, err := lab.InstallEnvoy(ctx, nil)
	for _, program := range []string{coredns, xdsd, coredhcp} {
		_, buildErr := lab.BuildStatic(ctx, program)
		err = errors.Join(err, buildErr)
	}
	_, assetsErr := lab.Build(ctx, nil)
	_, crdsErr := lab.CRDs(ctx, crds...)
	return errors.Join(err, assetsErr, crdsErr)
}

// A bench is one part: its size, an API server, a directory and the results.
type bench struct {
	*testing.T
	size
	report

	memoryWithout [2]float64 // of CoreDNS without hosted clusters: at rest and after queries, in MB

	dir        string
	management *lab.ControlPlane
	objects    objects
	// serverCPU is the CPU of the compared servers, loadCPU the CPU of their load, so that neither takes CPU time from the other.
	// Both are nil if only one CPU is available.
	serverCPU, loadCPU *int
}

// newBench starts the API server of a part, which needs the given programs.
func newBench(t *testing.T, title string, config lab.Config, programs ...string) *bench {
	t.Helper()
	if !enabled() {
		lab.NeedLong(t)
	}
	network.Need(t)
	for _, program := range append(programs, "taskset") {
		switch _, err := exec.LookPath(program); {
		case err != nil && os.Getenv("CI") != "":
			t.Fatalf("%v; install it with: sudo make deps", err)
		case err != nil:
			t.Skipf("%v; install it with: sudo make deps", err)
		}
	}
	s, ok := sizes[*sizeName]
	if !ok {
		t.Fatalf("-size %q: must be full, quick or tiny", *sizeName)
	}
	config.Name, config.CRDs = "bench", crds
	b := &bench{T: t, size: s, dir: lab.TempDir(t), management: lab.New(t, config)}
	b.title = fmt.Sprintf("%s, size %s, load average %s", title, *sizeName, loadAverage())
	b.objects = newObjects(t, b.management)
	b.serverCPU, b.loadCPU = separateCPUs(t)
	t.Cleanup(func() {
		if !t.Failed() {
			fmt.Println(b.markdown()) // not by t.Log, which indents it
		}
	})
	return b
}

// program returns the path of a measured program.
func (b *bench) program(pkg string) string {
	b.Helper()
	path, err := lab.BuildStatic(b.Context(), pkg)
	b.check(err)
	return path
}

// start starts a process, on one CPU or on all if cpu is nil. It is killed when the part ends.
func (b *bench) start(name string, cpu *int, command string, args ...string) *lab.Daemon {
	b.Helper()
	if cpu != nil {
		args = append([]string{"-c", fmt.Sprint(*cpu), command}, args...)
		command = "taskset"
	}
	d := lab.NewDaemon(b, name, func() *exec.Cmd { return exec.CommandContext(context.WithoutCancel(b.Context()), command, args...) })
	d.Start(b)
	return d
}

// write writes a file to the part's directory, and returns its path.
func (b *bench) write(name, text string) string {
	b.Helper()
	path := filepath.Join(b.dir, name)
	b.check(os.WriteFile(path, []byte(text), 0o600))
	return path
}

func (b *bench) check(err error) {
	b.Helper()
	lab.Must(b, err)
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err.Error()
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
