//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

// soak is set by make soak.
var soak = flag.Int("soak", 0, "rounds of failures that last as long as in production; 0 for one round of short ones")

// maxTwoHolders is the maximum time during which two replicas may have the proxy's address, as in
// docs/explanation/failover.md: the time for which a holder relies on its Lease.
const maxTwoHolders = 10 * time.Second

// drainTime is how long open connections may continue when a replica of replicatedInfra is terminated.
const drainTime = 10 * time.Second

// A loss is the failure or replacement of a component of a site with two nodes.
type loss struct {
	name string
	// inject causes the loss of one proxy replica or its node, or of other components, and returns when it is
	// effective. repair, unless it is nil, ends it.
	inject, repair func(*testing.T, *proxyPair)
	// duration is the time from injection to repair; in a soak it is longDuration.
	duration, longDuration time.Duration
	// closesConnections and closesOther are set if connections through the holder, and those through the
	// other replica, end.
	closesConnections, closesOther bool
	// moves is the maximum number of changes to the Lease's holder.
	moves int32
	// planned is set if the proxy is terminated. New connections must not fail, and open ones must continue for
	// drainTime.
	planned bool
	// extra losses are only tested at full length and in a soak.
	extra bool
}

// proxyPair is the holder of the address and the other proxy replica, before a loss.
type proxyPair struct{ holder, other *corev1.Pod }

// losses returns all losses, ordered so that each one leaves the state that the next one requires.
func (c *twoNodes) losses(v *serviceMonitor) []loss {
	kill := func(which func(*testing.T, *proxyPair) *corev1.Pod) func(*testing.T, *proxyPair) {
		return func(t *testing.T, p *proxyPair) {
			t.Helper()
			pod := which(t, p)
			lab.Must(t, c.cp.Kube(t).CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
			c.awaitReplacement(t, pod)
		}
	}
	first := func(component string) func(*testing.T, *proxyPair) *corev1.Pod {
		return func(t *testing.T, _ *proxyPair) *corev1.Pod { t.Helper(); return &c.pods(t, component)[0] }
	}
	toNode := func(do func(context.Context, *lab.Node) error) func(*testing.T, *proxyPair) {
		return func(t *testing.T, p *proxyPair) {
			t.Helper()
			lab.Must(t, do(t.Context(), c.node(p.holder)))
		}
	}
	unplug := func(bridge string) func(context.Context, *lab.Node) error {
		return func(_ context.Context, n *lab.Node) error { return n.Unplug(bridge) }
	}
	plug := func(bridge string) func(context.Context, *lab.Node) error {
		return func(_ context.Context, n *lab.Node) error { return n.Plug(bridge) }
	}
	off := func(ctx context.Context, n *lab.Node) error { return n.PowerOff(ctx) }
	on := func(ctx context.Context, n *lab.Node) error { return n.PowerOn(ctx) }
	// short is longer than the control plane takes to mark a node NotReady. long, for a soak, is longer than
	// the 5 minutes after which it evicts the node's Pods.
	const short, long = 20 * time.Second, 7 * time.Minute
	images := 1
	return []loss{
		{name: "pod of the holder killed", extra: true, inject: kill(func(_ *testing.T, p *proxyPair) *corev1.Pod { return p.holder }), closesConnections: true, moves: 1},
		{name: "pod of the other proxy killed", extra: true, inject: kill(func(_ *testing.T, p *proxyPair) *corev1.Pod { return p.other }), closesOther: true},
		{name: "pod of DNS killed", extra: true, inject: kill(first(v1alpha1.ComponentDNS))},
		{name: "pod of DHCP killed", extra: true, inject: kill(first(v1alpha1.ComponentDHCP))},
		{name: "node without power", inject: toNode(off), repair: toNode(on), duration: short, longDuration: long, closesConnections: true, moves: 1},
		{name: "node cut off from the control plane", extra: true, inject: toNode(unplug("")), repair: toNode(plug("")), duration: short, longDuration: long, closesConnections: true, moves: 1},
		{name: "node cut off from the VLAN", extra: true, inject: toNode(unplug(vlan)), repair: toNode(plug(vlan)), duration: short, longDuration: long, closesConnections: true, moves: 1},
		{
			name: "API server away, and then the node", extra: true, duration: time.Minute, longDuration: 10 * time.Minute, closesConnections: true, moves: 1,
			inject: func(t *testing.T, p *proxyPair) {
				t.Helper()
				n := c.node(p.holder)
				lab.Must(t, c.cp.KillAPIServer())
				time.Sleep(15 * time.Second) // by then the Lease has expired
				lab.Must(t, n.PowerOff(t.Context()))
			},
			repair: func(t *testing.T, p *proxyPair) {
				t.Helper()
				lab.Must(t, errors.Join(c.cp.StartAPIServer(t.Context()), c.node(p.holder).PowerOn(t.Context())))
			},
		},
		{name: "another image", planned: true, closesConnections: true, closesOther: true, moves: 1, inject: func(t *testing.T, _ *proxyPair) {
			t.Helper()
			images++
			image := fmt.Sprintf("%s-%d", oooiImage, images)
			for _, n := range c.nodes {
				lab.Must(t, n.TagImage(t.Context(), oooiImage, image))
			}
			c.setup(t, replicatedInfra, "--image", image)
		}},
		{name: "a proxy that ends, rolled back", extra: true, closesOther: true, inject: func(t *testing.T, _ *proxyPair) {
			t.Helper()
			infraWithoutMemory := lab.Merge(replicatedInfra, "spec: {infraComponents: {proxy: {resources: {limits: {memory: 8Mi}}}}}")
			c.expectFailure(infraWithoutMemory, []string{"rolled back to revision"})(t)
		}},
		{name: "node drained", planned: true, extra: true, closesConnections: true, moves: 1, inject: func(t *testing.T, p *proxyPair) {
			t.Helper()
			n := c.node(p.holder)
			c.drain(t, n)
			v.awaitService(t, "service of a drained node", time.Now())
			c.cordon(t, n, false)
		}},
	}
}

// TestTwoNodes expects doctor to report faults of the floating address, and injects each loss of a site with two nodes, while VMs
// query both DNS servers, request addresses from both DHCP servers and connect through the proxy. Service of one replica must
// continue. One of the VMs resolves the proxy's name only once, at the beginning.
func TestTwoNodes(t *testing.T) {
	c := newTwoNodes(t)
	c.serveClusterDNS(t, c.nodes[0])
	vlanServer(t, c.ca, "*.apps."+domain)
	c.setup(t, replicatedInfra, "--cluster-dns", "patch")
	for _, pair := range [][2]string{{"198.18.50.6", "198.18.50.16"}, {"198.18.50.5", "198.18.50.15"}, {"198.18.50.17", "198.18.50.27"}} {
		if c.nodeOf(t, pair[0]) == c.nodeOf(t, pair[1]) {
			t.Fatalf("%s and %s are on one node", pair[0], pair[1])
		}
	}
	one := c.boot(t, "worker-1", "02:00:00:00:50:71")
	two := c.boot(t, "worker-2", "02:00:00:00:50:72")
	if one.dns != "198.18.50.6" {
		t.Errorf("first DNS server of the lease is %s", one.dns)
	}
	t.Run("doctor", func(t *testing.T) { c.testFaults(t, faults.OnFloatingAddress) }) // before losses, after which doctor reports restarts
	defer func() {                                                                    // before the nodes are stopped
		if t.Failed() {
			c.logHolders(t)
		}
	}()
	proxy := &expectation{}
	proxy.set("198.18.50.7")
	v := &serviceMonitor{proxy: proxy, probes: []*lab.Probe{
		{Name: "names of the first", Ask: one.resolveAt("198.18.50.6", proxy)},
		{Name: "names of the second", Ask: one.resolveAt("198.18.50.16", proxy)},
		{Name: "names of either", Ask: either(one.resolveAt("198.18.50.6", proxy), one.resolveAt("198.18.50.16", proxy))},
		{Name: "leases renewed", Ask: one.dhcpClient(t).rebind},
		{Name: "addresses offered", Ask: two.dhcpClient(t).discover},
		{Name: "connections", Ask: one.connect(c.ca, one.resolved(t))},
	}}
	pods := &expectation{} // the address to which Pods of a worker connect
	pods.set(two.StartAPIProxy(t, apiHost+":6443", two.dns).Addr().String())
	o := &lossTest{twoNodes: c, serviceMonitor: v, machine: one, worker: two.connect(c.ca, pods), capture: lab.WatchARP(t, nil, vlan, netip.MustParseAddr("198.18.50.7"))}
	v.start(t)
	all := c.losses(v)
	for round := range max(*soak, 1) {
		for _, l := range all {
			if l.extra && *soak == 0 && !lab.Long() {
				continue
			}
			if *soak > 0 {
				l.name, l.duration = fmt.Sprintf("%s, round %d", l.name, round+1), l.longDuration
			}
			t.Run(l.name, func(t *testing.T) { o.measure(t, l) })
		}
	}
	reportWrongAnswers(t, v.probes)
	t.Run("kubectl oooi test", func(t *testing.T) { o.verifyTwoNodes(t) })
	header := []string{"one DNS server", "both DNS servers", "leases renewed", "addresses offered", "connections", "two holders", "failed connections", "connection through the holder", "through the other"}
	t.Logf("seconds without service:\n%s", table(header, v.rows))
}

// A lossTest measures losses of two nodes.
type lossTest struct {
	*twoNodes
	*serviceMonitor

	machine *vm
	worker  func(context.Context) error // connects like a Pod of a worker
	capture *lab.ARPWatch
}

// measure injects a loss, and adds a row with its effects on VMs.
func (o *lossTest) measure(t *testing.T, l loss) {
	t.Helper()
	o.spreadReplicas(t)
	o.awaitService(t, "service before", time.Now())
	p := &proxyPair{}
	p.holder, p.other = o.awaitProxies(t, o.capture)
	throughHolder, throughOther := o.open(t, "198.18.50.7"), o.open(t, ownAddress(t, p.other))
	defer throughHolder.Close()
	defer throughOther.Close()
	before := *o.lease(t).Spec.LeaseTransitions

	began := time.Now()
	endConnections := o.connectOften(t, l.planned)
	l.inject(t, p)
	if l.repair != nil {
		time.Sleep(l.duration - time.Since(began))
		for _, probe := range o.probes[2:] { // on a busy machine single requests time out
			lab.Await(t, "service with one node left", func() string { return probe.Problem(time.Now().Add(-5 * time.Second)) })
		}
		l.repair(t, p)
	}
	o.ready(t)
	o.awaitService(t, "service after", time.Now())
	now, _ := o.awaitProxies(t, o.capture)
	o.awaitMetrics(t, now)
	moves := *o.lease(t).Spec.LeaseTransitions - before
	t.Logf("the address moved from %s to %s; the Lease's holder changed %d times", p.holder.Name, now.Name, moves)
	if moves > l.moves {
		t.Errorf("the Lease's holder changed %d times, want %d at most", moves, l.moves)
	}
	lab.Await(t, "the worker that resolved the name once to connect", func() string {
		ctx, cancel := context.WithTimeout(t.Context(), lab.ProbeTimeout)
		defer cancel()
		if err := o.worker(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	twoHolders := o.capture.TimeWithTwoHolders(began)
	if twoHolders > maxTwoHolders {
		t.Errorf("two replicas had the address for %s", twoHolders)
	}
	row := l.name + fmt.Sprintf("\t%.1f", max(o.probes[0].Outage(began), o.probes[1].Outage(began)).Seconds())
	for _, probe := range o.probes[2:] {
		row += fmt.Sprintf("\t%.1f", probe.Outage(began).Seconds())
	}
	row += fmt.Sprintf("\t%.2f", twoHolders.Seconds())
	if l.planned {
		if lasted := throughHolder.Duration(began); lasted < drainTime {
			t.Errorf("a connection through the holder ended %s after the loss, want %s or more", lasted, drainTime)
		}
	}
	row += "\t" + endConnections()
	o.add(t, row+"\t"+outcome(t, throughHolder, l.closesConnections, began)+"\t"+outcome(t, throughOther, l.closesOther, began))
}

// connectOften connects 50 times a second through the floating address, like clients that wait for a retransmission. The
// returned function ends that, and returns how many connections failed. Those may fail that were in progress when the
// address moved: one on an idle machine, more if each takes longer.
func (o *lossTest) connectOften(t *testing.T, planned bool) (end func() string) {
	t.Helper()
	if !planned {
		return func() string { return "" }
	}
	at := &expectation{}
	at.set("198.18.50.7")
	const every = 20 * time.Millisecond
	often := &lab.Probe{Name: "new connections", Ask: o.machine.connect(o.ca, at), Every: every, Timeout: 5 * time.Second}
	stop := often.Start(t)
	return func() string {
		t.Helper()
		stop()
		all, failed := often.Since(time.Time{}), 0
		var took []time.Duration
		for _, q := range all {
			if q.Err != nil {
				failed++
				t.Logf("new connection at %s: %v", q.At.Format(time.TimeOnly+".000"), q.Err)
				continue
			}
			took = append(took, q.Took)
		}
		if len(took) == 0 {
			t.Fatal("no new connection succeeded")
		}
		slices.Sort(took)
		usual := took[len(took)/2]
		if inProgress := 1 + int(usual/every); failed > inProgress {
			t.Errorf("%d new connections failed, want at most %d, which are in progress if each takes %s", failed, inProgress, usual)
		}
		return fmt.Sprintf("%d of %d", failed, len(all))
	}
}

// verifyTwoNodes tests the site with 'kubectl oooi test', and what VMs do without while each proxy replica is replaced; at full
// length also while the other pods are.
func (o *lossTest) verifyTwoNodes(t *testing.T) {
	t.Helper()
	o.spreadReplicas(t)
	o.grantTest(t)
	before := o.everything(t)
	lab.Await(t, "all scenarios about one hosted cluster to pass", func() string {
		want := []string{"isolation-names skip", "isolation-proxy skip", "isolation-addresses skip"}
		if got := o.verify(t, "--skip", "egress").notPassed(); !slices.Equal(got, want) { // the site lacks a registry
			return fmt.Sprintf("not passed: %q, want %q", got, want)
		}
		return ""
	})
	scenarios, moves := "replace-proxy", *o.lease(t).Spec.LeaseTransitions
	t.Run("disruptive", func(t *testing.T) {
		if lab.Long() {
			scenarios = "replace"
		}
		if got := o.verify(t, "--disruptive", "--yes", "--only", scenarios).notPassed(); len(got) > 0 {
			t.Errorf("not passed: %q", got)
		}
	})
	if *o.lease(t).Spec.LeaseTransitions == moves {
		t.Error("the floating address has not moved")
	}
	o.ready(t)
	lab.Await(t, "the test to leave nothing", func() string { return cmp.Diff(before, o.everything(t)) })
}

// open opens a connection through the floating address, or through a replica's own address.
func (o *lossTest) open(t *testing.T, address string) (s *lab.Stream) {
	t.Helper()
	at := &expectation{}
	at.set(address)
	lab.Await(t, "a connection at "+address, func() (problem string) {
		var err error
		if s, err = o.machine.stream(t.Context(), o.ca, at); err != nil {
			problem = err.Error()
		}
		return problem
	})
	return s
}

// outcome returns the longest time without an echo on a connection, and how the connection ended. If cut is
// set the connection must end, and the client must be notified.
func outcome(t *testing.T, s *lab.Stream, cut bool, began time.Time) string {
	t.Helper()
	if cut {
		lab.Await(t, "a connection to end", func() string {
			if s.Failure() == nil {
				return "it is still open"
			}
			return ""
		})
	}
	longest := fmt.Sprintf("%.1f, ", s.LongestSilence(began).Seconds())
	switch err := s.Failure(); {
	case err == nil:
		return longest + "stayed"
	case !cut:
		t.Errorf("a connection ended: %v", err)
		return longest + "ended"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return longest + "reset"
	case errors.Is(err, io.EOF):
		return longest + "closed"
	default:
		t.Errorf("a connection ended without FIN or RST: %v", err)
		return longest + "ended"
	}
}
