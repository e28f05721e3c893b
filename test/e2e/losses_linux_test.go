//go:build e2e

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// soak is for make soak.
var soak = flag.Int("soak", 0, "rounds of losses that last as long as they may at a site; 0 for one of short ones")

// bound is for how long two may have the proxy's address, by docs/explanation/failover.md: as long as a
// holder takes its Lease for its own.
const bound = 10 * time.Second

// A loss is something that befalls what two nodes carry.
type loss struct {
	name string
	// strike has it happen to one instance of the proxy or its node, or to others, and returns
	// when it has. mend, unless it is nil, ends it after some time.
	strike, mend func(*testing.T, *twoProxies)
	// lasts is for how long, where it is mended; long in a soak.
	lasts, long time.Duration
	// cuts and cutsOther tell whether connections by the holder end, and those by the other
	// instance.
	cuts, cutsOther bool
	// moves is how often the address may be handed on.
	moves int32
	// extra: only in make test-long and make soak.
	extra bool
}

// twoProxies are the instances of the proxy before a loss.
type twoProxies struct{ holder, other *corev1.Pod }

// losses are all of them, in an order in which one leaves what the next one needs.
func (c *twoNodes) losses(v *visit) []loss {
	kill := func(which func(*testing.T, *twoProxies) *corev1.Pod) func(*testing.T, *twoProxies) {
		return func(t *testing.T, p *twoProxies) {
			t.Helper()
			pod := which(t, p)
			if err := kube(t, c.cp).CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
				t.Fatal(err)
			}
			c.replaced(t, pod)
		}
	}
	first := func(component string) func(*testing.T, *twoProxies) *corev1.Pod {
		return func(t *testing.T, _ *twoProxies) *corev1.Pod { t.Helper(); return &c.pods(t, component)[0] }
	}
	toNode := func(do func(context.Context, *lab.Node) error) func(*testing.T, *twoProxies) {
		return func(t *testing.T, p *twoProxies) {
			t.Helper()
			if err := do(t.Context(), c.node(p.holder)); err != nil {
				t.Fatal(err)
			}
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
	// Longer than the control plane takes to call a node dead; in a soak longer than it takes to
	// give up its Pods, which are 5 minutes.
	const short, long = 20 * time.Second, 7 * time.Minute
	images := 1
	return []loss{
		{name: "pod of the holder killed", strike: kill(func(_ *testing.T, p *twoProxies) *corev1.Pod { return p.holder }), cuts: true, moves: 1},
		{name: "pod of the other proxy killed", extra: true, strike: kill(func(_ *testing.T, p *twoProxies) *corev1.Pod { return p.other }), cutsOther: true},
		{name: "pod of DNS killed", extra: true, strike: kill(first(v1alpha1.ComponentDNS))},
		{name: "pod of DHCP killed", extra: true, strike: kill(first(v1alpha1.ComponentDHCP))},
		{name: "node without power", strike: toNode(off), mend: toNode(on), lasts: short, long: long, cuts: true, moves: 1},
		{name: "node cut off from the control plane", extra: true, strike: toNode(unplug("")), mend: toNode(plug("")), lasts: short, long: long, cuts: true, moves: 1},
		{name: "node cut off from the VLAN", extra: true, strike: toNode(unplug(vlan)), mend: toNode(plug(vlan)), lasts: short, long: long, cuts: true, moves: 1},
		{
			name: "API server away, and then the node", extra: true, lasts: time.Minute, long: 10 * time.Minute, cuts: true, moves: 1,
			strike: func(t *testing.T, p *twoProxies) {
				t.Helper()
				n := c.node(p.holder)
				if err := c.cp.KillAPIServer(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(15 * time.Second) // by then no Lease is anybody's
				if err := n.PowerOff(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			mend: func(t *testing.T, p *twoProxies) {
				t.Helper()
				if err := errors.Join(c.cp.StartAPIServer(t.Context()), c.node(p.holder).PowerOn(t.Context())); err != nil {
					t.Fatal(err)
				}
			},
		},
		{name: "another image", cuts: true, cutsOther: true, moves: 1, strike: func(t *testing.T, _ *twoProxies) {
			t.Helper()
			images++
			image := fmt.Sprintf("%s-%d", oooiImage, images)
			for _, n := range c.nodes {
				if err := n.TagImage(t.Context(), oooiImage, image); err != nil {
					t.Fatal(err)
				}
			}
			c.setup(t, several, "--image", image)
		}},
		{name: "a proxy that ends, rolled back", cutsOther: true, strike: func(t *testing.T, _ *twoProxies) {
			t.Helper()
			starved := strings.Replace(several, "proxy: {serverIP: 198.18.50.7,", "proxy: {serverIP: 198.18.50.7, resources: {limits: {memory: 8Mi}},", 1)
			c.refused(starved, []string{"proxy is rolled back"})(t)
		}},
		{name: "node drained", extra: true, cuts: true, moves: 1, strike: func(t *testing.T, p *twoProxies) {
			t.Helper()
			n := c.node(p.holder)
			c.drain(t, n)
			v.awaitService(t, "service of a drained node", time.Now())
			c.cordon(t, n, false)
		}},
	}
}

// TestTwoNodes has machines ask both DNS servers and both DHCP servers all the time, and connect by
// the proxy, while whatever can be lost of two nodes is lost: one of each goes on. Of
// the machines one asked for the proxy's address once, when it began.
func TestTwoNodes(t *testing.T) {
	c := newTwoNodes(t)
	c.setup(t, several)
	for _, pair := range [][2]string{{"198.18.50.6", "198.18.50.16"}, {"198.18.50.5", "198.18.50.15"}, {"198.18.50.17", "198.18.50.27"}} {
		if c.on(t, pair[0]) == c.on(t, pair[1]) {
			t.Fatalf("%s and %s are on one node", pair[0], pair[1])
		}
	}
	one := c.boot(t, "worker-1", "02:00:00:00:50:71")
	two := c.boot(t, "worker-2", "02:00:00:00:50:72")
	if one.dns != "198.18.50.6" {
		t.Errorf("a machine is told of DNS server %s first", one.dns)
	}
	defer func() { // while there is somebody to ask
		if t.Failed() {
			c.logHolders(t)
		}
	}()
	proxy := &expectation{}
	proxy.set("198.18.50.7")
	v := &visit{proxy: proxy, probes: []*probe{
		{name: "names of the first", ask: one.resolveAt("198.18.50.6", proxy)},
		{name: "names of the second", ask: one.resolveAt("198.18.50.16", proxy)},
		{name: "names of either", ask: either(one.resolveAt("198.18.50.6", proxy), one.resolveAt("198.18.50.16", proxy))},
		{name: "leases prolonged", ask: one.lessee(t).rebind},
		{name: "addresses offered", ask: two.lessee(t).discover},
		{name: "connections", ask: one.connect(c.ca, one.resolved(t))},
	}}
	pods := &expectation{} // where those of a worker connect
	pods.set(two.StartAPIProxy(t, apiHost+":6443", two.dns).Addr().String())
	o := &ordeal{twoNodes: c, visit: v, machine: one, worker: two.connect(c.ca, pods), seen: newCapture(t, vlan, "198.18.50.7")}
	v.begin(t)
	all := c.losses(v)
	for round := range max(*soak, 1) {
		for _, l := range all {
			if l.extra && *soak == 0 && !lab.Long() {
				continue
			}
			if *soak > 0 {
				l.name, l.lasts = fmt.Sprintf("%s, round %d", l.name, round+1), l.long
			}
			t.Run(l.name, func(t *testing.T) { o.endure(t, l) })
		}
	}
	for _, p := range v.probes {
		for _, err := range p.wrong() {
			t.Error(err)
		}
	}
	header := []string{"names of one", "names of either", "leases prolonged", "addresses offered", "connections", "two answer", "one by the holder", "one by the other"}
	t.Logf("seconds without service:\n%s", table(header, v.rows))
}

// An ordeal is a visit to two nodes that lose this and that.
type ordeal struct {
	*twoNodes
	*visit

	machine *vm
	worker  func(context.Context) error // connects as a Pod of a worker does
	seen    *capture
}

// endure goes through a loss, and writes down what machines notice.
func (o *ordeal) endure(t *testing.T, l loss) {
	t.Helper()
	o.spread(t)
	o.awaitService(t, "service before", time.Now())
	p := &twoProxies{}
	p.holder, p.other = o.proxies(t, o.seen)
	byHolder, byOther := o.open(t, "198.18.50.7"), o.open(t, ownAddress(t, p.other))
	defer byHolder.close()
	defer byOther.close()
	before := *o.lease(t).Spec.LeaseTransitions

	began := time.Now()
	l.strike(t, p)
	if l.mend != nil {
		time.Sleep(l.lasts - time.Since(began))
		for _, probe := range o.probes[2:] {
			if why := probe.amiss(time.Now().Add(-5 * time.Second)); why != "" {
				t.Errorf("with one node left: %s", why)
			}
		}
		l.mend(t, p)
	}
	o.ready(t)
	o.awaitService(t, "service after", time.Now())
	now, _ := o.proxies(t, o.seen)
	o.metricsAgree(t, now)
	moves := *o.lease(t).Spec.LeaseTransitions - before
	t.Logf("the address was at %s and is at %s; the Lease has changed hands %d times", p.holder.Name, now.Name, moves)
	if moves > l.moves {
		t.Errorf("the Lease has changed hands %d times, and need not more often than %d", moves, l.moves)
	}
	await(t, "the worker that resolved the name once to connect", func() string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := o.worker(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	doubled := o.seen.doubled(began)
	if doubled > bound {
		t.Errorf("two had the address for %s", doubled)
	}
	row := l.name + fmt.Sprintf("\t%.1f", max(o.probes[0].outage(began), o.probes[1].outage(began)).Seconds())
	for _, probe := range o.probes[2:] {
		row += fmt.Sprintf("\t%.1f", probe.outage(began).Seconds())
	}
	row += fmt.Sprintf("\t%.2f", doubled.Seconds())
	o.add(t, row+"\t"+fate(t, byHolder, l.cuts, began)+"\t"+fate(t, byOther, l.cutsOther, began))
}

// open opens a connection by the proxy's address, or by one of its instances' own.
func (o *ordeal) open(t *testing.T, address string) (s *stream) {
	t.Helper()
	at := &expectation{}
	at.set(address)
	await(t, "a connection at "+address, func() (why string) {
		var err error
		if s, err = o.machine.stream(t.Context(), o.ca, at); err != nil {
			why = err.Error()
		}
		return why
	})
	return s
}

// ownAddress is that of an instance of the proxy.
func ownAddress(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	for _, network := range networkStatus(t, pod.Annotations) {
		for _, a := range network.IPs {
			if netip.MustParsePrefix("198.18.50.0/24").Contains(a) {
				return a.String()
			}
		}
	}
	t.Fatalf("%s has no address on the VLAN", pod.Name)
	return ""
}

// fate is what became of a connection: the longest time in which nothing came back, and its end.
// It is told of that, and does not find out by itself.
func fate(t *testing.T, s *stream, cut bool, began time.Time) string {
	t.Helper()
	if cut {
		await(t, "a connection to end", func() string {
			if s.broken() == nil {
				return "it has not"
			}
			return ""
		})
	}
	silence := fmt.Sprintf("%.1f, ", s.silence(began).Seconds())
	switch err := s.broken(); {
	case err == nil:
		return silence + "stayed"
	case !cut:
		t.Errorf("a connection has ended: %v", err)
		return silence + "ended"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return silence + "reset"
	case errors.Is(err, io.EOF):
		return silence + "closed"
	default:
		t.Errorf("a connection has ended, and was not told: %v", err)
		return silence + "ended"
	}
}

// either asks the second a moment after the first, as a resolver does that has two servers, and
// takes the first answer.
func either(first, second func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		answers := make(chan error, 2)
		var asking sync.WaitGroup
		defer asking.Wait()
		asking.Go(func() { answers <- first(ctx) })
		select {
		case err := <-answers:
			if err == nil {
				return nil
			}
			answers <- err
		case <-time.After(patience / 2):
		}
		asking.Go(func() { answers <- second(ctx) })
		err := <-answers
		if err != nil {
			err = <-answers
		}
		return err
	}
}
