//go:build e2e

package e2e_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// resting is how long TestAtRest measures.
var resting = flag.Duration("rest", 0, "time at rest that TestAtRest measures; 0 for none, at full length 2m")

// Limits of what is used while nothing changes, as in docs/reference/capacity.md.
const (
	maxAnonymous = 40.0 // MB
	maxRequests  = 0.2  // a second, of the pods of one replica
)

// watchesOfPods are the watches of the pods of an Infra, by component.
var watchesOfPods = map[string]int{"dhcp": 6, "dns": 6, "proxy": 8}

// TestAtRest measures what the pods of an Infra with two replicas, of control and of VirtualIngress use while nothing changes: memory
// and CPU of each container, and the watches and requests of each pod. Results are in docs/reference/measurements.md.
func TestAtRest(t *testing.T) {
	if *resting == 0 {
		lab.NeedLong(t)
		*resting = 2 * time.Minute
	}
	s := newSite(t)
	s.cp.MustApply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: clusters, labels: {pod-security.kubernetes.io/enforce: privileged}}}")
	s.setup(t, replicatedInfra, "--virtual-ingress")
	t.Cleanup(func() {
		s.oooi(t, "-n", "clusters", "teardown", "demo", "--yes", "--leases", "--crds", "--virtual-ingress")
		s.down = true
	})
	const vms = 12
	for i := range vms {
		s.cp.Create(t, inVMs.VirtualMachineInstance(fmt.Sprintf("idle-%d", i), fmt.Sprintf("02:00:00:00:51:%02d", i)))
	}
	for i := range 3 {
		s.boot(t, fmt.Sprintf("worker-%d", i), fmt.Sprintf("02:00:00:00:50:%02d", 71+i))
	}
	time.Sleep(*resting) // until the processes have handled the changes that setup and the VMs made

	pids, cpu := map[string]int{}, map[string]time.Duration{} // by "namespace/pod container"
	for _, pod := range s.pods(t, "") {
		for _, c := range pod.Status.ContainerStatuses {
			name := pod.Namespace + "/" + pod.Name + " " + c.Name
			pids[name] = lab.ContainerPID(t, c.ContainerID)
			cpu[name] = lab.CPUTime(t, pids[name])
		}
	}
	before := time.Now()
	time.Sleep(*resting)
	seconds := time.Since(before).Seconds()
	loads := lab.LoadsOf(t, s.cp, before)

	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "container\tresident, MB\tanonymous, MB\tCPU, % of one\twatches of the pod\trequests/s of the pod\trequests")
	requests := map[string]float64{} // by component
	for _, name := range slices.Sorted(maps.Keys(pids)) {
		pod, container, _ := strings.Cut(name, " ")
		load := cmp.Or(loads[pod], &lab.ClientLoad{})
		resident, anonymous := lab.Memory(t, pids[name])
		watches, rate := 0, float64(len(load.Times()))/seconds
		for _, n := range load.Watches {
			watches += n
		}
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.2f\t%d\t%.3f\t%s\n", name, resident, anonymous,
			100*(lab.CPUTime(t, pids[name])-cpu[name]).Seconds()/seconds, watches, rate, load.Counts())
		if anonymous > maxAnonymous {
			t.Errorf("%s has %.1f MB of anonymous memory", name, anonymous)
		}
		for what, times := range load.Requests {
			if strings.HasPrefix(what, "watch ") && float64(len(times)) > 1+3*seconds/60 { // the holder's watch ends after 30 s, others after minutes
				t.Errorf("%s opened %d times: %s", pod, len(times), what)
			}
		}
		for component, want := range watchesOfPods {
			if !strings.Contains(pod, "-"+component+"-") {
				continue
			}
			if watches != want {
				t.Errorf("%s has %d watches, want %d: %v", pod, watches, want, load.Watches)
			}
			if container != "holder" { // counted with xdsd
				requests[component] = max(requests[component], rate)
			}
		}
	}
	lab.Must(t, table.Flush())
	t.Logf("%d VMs, measured for %s\n%s", vms, *resting, &text)
	if rate := requests["dhcp"] + requests["dns"]; rate > maxRequests {
		t.Errorf("%.3f requests a second of one replica of DHCP and DNS", rate)
	}
}
