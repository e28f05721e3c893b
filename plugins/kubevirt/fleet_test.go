package kubevirt

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/test/lab"
)

// BenchmarkFleet watches 10,000 VMs of realistic size on a real API server. It reports the time until the directory
// is synced, its memory, the time from the API server's reply to the creation of a VM until the VM is known, and,
// as the time of an operation, a look-up.
func BenchmarkFleet(b *testing.B) {
	const vms = 10_000
	cp := lab.New(b, lab.Config{CRDs: []lab.CRDSet{lab.KubeVirt, lab.KubeVirtMachines}})
	ns := cp.Namespace(b)
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	if err != nil {
		b.Fatal(err)
	}
	create := func(ctx context.Context, n int) error {
		u := parseYAML(b, strings.TrimSuffix(vmi(ns, fmt.Sprint("worker-", n), hardware(n).String(), "demo", ""), "---\n"))
		u.SetAnnotations(map[string]string{"rest": strings.Repeat("x", 8<<10)})
		_, err := client.Resource(instances).Namespace(ns).Create(ctx, u, metav1.CreateOptions{})
		return err
	}
	group, ctx := errgroup.WithContext(b.Context())
	group.SetLimit(16)
	for n := range vms {
		group.Go(func() error { return create(ctx, n) })
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}

	before := heap()
	start := time.Now()
	d := startDirectory(b, config{network: "clusters/vlan", namespaces: ns, kubeconfig: cp.Kubeconfig()})
	await(b, "the directory to be synced", d.Synced)
	synced, kept := time.Since(start), heap()-before
	const changes = 20
	var waited time.Duration
	for n := range changes {
		if err := create(b.Context(), vms+n); err != nil {
			b.Fatal(err)
		}
		replied := time.Now()
		for known := false; !known; _, known = d.Lookup(hardware(vms + n)) {
			time.Sleep(100 * time.Microsecond)
		}
		waited += time.Since(replied)
	}
	mac := hardware(7)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := d.Lookup(mac); !ok {
			b.Fatal("the VM is unknown")
		}
	}
	b.ReportMetric(synced.Seconds(), "s-to-sync")
	b.ReportMetric(kept/(1<<20), "MB")
	b.ReportMetric(waited.Seconds()*1e3/changes, "ms-to-know-another")
}

func hardware(n int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 1, byte(n >> 8), byte(n)} }

// heap returns the size of live objects on the heap, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
