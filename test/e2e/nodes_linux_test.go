//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// twoNodes is a management cluster of a test's own, whose control plane takes a node for dead
// after a few seconds.
type twoNodes struct {
	*site

	nodes []*lab.Node
}

func newTwoNodes(t *testing.T) *twoNodes {
	t.Helper()
	lab.NeedNode(t, tools...)
	network.Need(t)
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	cp := lab.New(t, lab.Config{
		Name: "two", Address: "192.0.2.2", ControllerManager: true, Scheduler: true,
		ControllerManagerFlags: []string{"--node-monitor-grace-period=8s", "--node-monitor-period=2s"},
	})
	c := &twoNodes{}
	for range 2 {
		n, err := startNode(t.Context(), cp)
		if err != nil {
			t.Fatal(err)
		}
		stopAtEnd(t, n)
		c.nodes = append(c.nodes, n)
	}
	c.site = newSiteOn(t, cp)
	return c
}

// several has two instances of everything. The proxy's address moves between its two.
var several = strings.NewReplacer(
	"proxy: {serverIP: 198.18.50.7}", "proxy: {serverIP: 198.18.50.7, instances: [{ip: 198.18.50.17}, {ip: 198.18.50.27}]}",
	"dhcp: {serverIP: 198.18.50.5,", "dhcp: {instances: [{ip: 198.18.50.5}, {ip: 198.18.50.15}],",
	"dns: {serverIP: 198.18.50.6}", "dns: {instances: [{ip: 198.18.50.6}, {ip: 198.18.50.16}]}",
).Replace(infra)

// on is the node that the Pod with an address on the VLAN is on.
func (c *twoNodes) on(t *testing.T, address string) *lab.Node {
	t.Helper()
	for _, pod := range c.pods(t, "") {
		for _, network := range networkStatus(t, pod.Annotations) {
			if slices.Contains(network.IPs, netip.MustParseAddr(address)) {
				i := slices.IndexFunc(c.nodes, func(n *lab.Node) bool { return n.Name() == pod.Spec.NodeName })
				return c.nodes[i]
			}
		}
	}
	t.Fatalf("no Pod has %s", address)
	return nil
}

// holder is the node of the proxy that has the address that moves.
func (c *twoNodes) holder(t *testing.T) *lab.Node {
	t.Helper()
	lease, err := kube(t, c.cp).CoordinationV1().Leases("clusters").Get(t.Context(), "demo-proxy-address", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range c.pods(t, v1alpha1.ComponentProxy) {
		for _, n := range c.nodes {
			if holder := lease.Spec.HolderIdentity; holder != nil && pod.Name == *holder && n.Name() == pod.Spec.NodeName {
				return n
			}
		}
	}
	t.Fatalf("nobody has the address: %v", lease.Spec)
	return nil
}

// ready waits until all Pods are ready, on nodes that are.
func (c *twoNodes) ready(t *testing.T) {
	t.Helper()
	await(t, "everything to be ready", func() string {
		nodes, err := kube(t, c.cp).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range nodes.Items {
			if len(nodes.Items[i].Spec.Taints) > 0 {
				return fmt.Sprintf("node %s has taints %v", nodes.Items[i].Name, nodes.Items[i].Spec.Taints)
			}
		}
		for _, pod := range c.pods(t, "") {
			if !ready(&pod) {
				return state(&pod)
			}
		}
		return ""
	})
}

// logHolders writes down what those say that move the proxy's address.
func (c *twoNodes) logHolders(t *testing.T) {
	t.Helper()
	for _, pod := range c.pods(t, v1alpha1.ComponentProxy) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		said, err := kube(t, c.cp).CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Container: "holder", TailLines: new(int64(40))}).DoRaw(ctx)
		t.Logf("%s on %s: %v\n%s", pod.Name, pod.Spec.NodeName, err, said)
	}
}

// TestANodeDies has a machine ask both DNS servers and both DHCP servers, and connect by the proxy,
// all the time while that of two nodes is lost in one way or another that the proxy's address is on:
// one of each goes on.
func TestANodeDies(t *testing.T) {
	c := newTwoNodes(t)
	// One container of the proxy's has capabilities, by which it moves the address.
	apply(t, c.cp, "{apiVersion: v1, kind: Namespace, metadata: {name: clusters, labels: {pod-security.kubernetes.io/enforce: privileged}}}")
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
		{name: "connections", ask: one.connect(c.ca, proxy)},
	}}
	v.begin(t)
	for _, f := range []struct {
		name       string
		lose, back func(*lab.Node) error
	}{
		{"the node without power", func(n *lab.Node) error { return n.PowerOff(t.Context()) }, func(n *lab.Node) error { return n.PowerOn(t.Context()) }},
		{"the node cut off from the control plane", func(n *lab.Node) error { return n.Unplug("") }, func(n *lab.Node) error { return n.Plug("") }},
		{"the node cut off from the VLAN", func(n *lab.Node) error { return n.Unplug(vlan) }, func(n *lab.Node) error { return n.Plug(vlan) }},
		{"the API server away, and then the node", func(n *lab.Node) error {
			if err := c.cp.KillAPIServer(); err != nil {
				return err
			}
			return n.PowerOff(t.Context())
		}, func(n *lab.Node) error {
			if err := c.cp.StartAPIServer(t.Context()); err != nil {
				return err
			}
			return n.PowerOn(t.Context())
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			v.awaitService(t, "service before", time.Now())
			victim := c.holder(t)
			began := time.Now()
			if err := f.lose(victim); err != nil {
				t.Fatal(err)
			}
			// Longer than the control plane takes to call the node dead.
			time.Sleep(20 * time.Second)
			for _, p := range v.probes[2:] {
				if why := p.amiss(began.Add(15 * time.Second)); why != "" {
					t.Errorf("with one node left: %s", why)
				}
			}
			if err := f.back(victim); err != nil {
				t.Fatal(err)
			}
			c.ready(t)
			v.awaitService(t, "service after", time.Now())
			v.add(t, v.row(f.name, began))
		})
	}
	for _, p := range v.probes {
		for _, err := range p.wrong() {
			t.Error(err)
		}
	}
	t.Logf("seconds without service:\n%s", v.table())
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
