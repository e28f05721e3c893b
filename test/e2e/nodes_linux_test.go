//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// twoNodes is a management cluster of one test, whose control plane marks a node NotReady after a few
// seconds.
type twoNodes struct {
	*site

	nodes []*lab.Node
}

func newTwoNodes(t *testing.T) *twoNodes {
	t.Helper()
	lab.NeedNode(t, tools...)
	network.Need(t)
	lab.Must(t, sources())
	cp := lab.New(t, lab.Config{
		Name: "two", Address: "192.0.2.2", ControllerManager: true, Scheduler: true,
		ControllerManagerFlags: []string{"--node-monitor-grace-period=8s", "--node-monitor-period=2s"},
	})
	c := &twoNodes{}
	for range 2 {
		n, err := startNode(t.Context(), cp)
		lab.Must(t, err)
		stopAtEnd(t, n)
		c.nodes = append(c.nodes, n)
	}
	c.site = newSiteOn(t, cp)
	// One container of the proxy has capabilities, with which it moves the address.
	cp.MustApply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: clusters, labels: {pod-security.kubernetes.io/enforce: privileged}}}")
	return c
}

// replicatedInfra is the Infra with two replicas of each component. The proxy's serverIP
// floats between its two replicas. Open connections may continue for drainTime when a replica is terminated.
var replicatedInfra = editedInfra(`
  proxy: {terminationGracePeriodSeconds: 25, instances: [{ip: 198.18.50.17}, {ip: 198.18.50.27}]},
  dhcp: {serverIP: null, instances: [{ip: 198.18.50.5}, {ip: 198.18.50.15}]},
  dns: {serverIP: null, instances: [{ip: 198.18.50.6}, {ip: 198.18.50.16}]}`)

// nodeOf returns the node of the Pod with an address on the VLAN.
func (c *twoNodes) nodeOf(t *testing.T, address string) *lab.Node {
	t.Helper()
	for _, pod := range c.pods(t, "") {
		for _, network := range networkStatus(t, pod.Annotations) {
			if slices.Contains(network.IPs, netip.MustParseAddr(address)) {
				return c.node(&pod)
			}
		}
	}
	t.Fatalf("no Pod has %s", address)
	return nil
}

// networkOfPod is a network of a Pod in the network status of Multus.
type networkOfPod struct {
	IPs []netip.Addr `json:"ips"`
}

func networkStatus(t *testing.T, annotations map[string]string) (networks []networkOfPod) {
	t.Helper()
	if err := json.Unmarshal([]byte(annotations["k8s.v1.cni.cncf.io/network-status"]), &networks); err != nil {
		t.Fatalf("parsing the network status: %v: %q", err, annotations)
	}
	return networks
}

// ownAddress returns the VLAN address of a proxy replica.
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

// awaitProxies waits until one replica is the undisputed holder of the address: it has renewed the Lease
// recently, and only its MAC address claims the address. It returns the proxy's Pods.
func (c *twoNodes) awaitProxies(t *testing.T, arp *lab.ARPWatch) (holder, other *corev1.Pod) {
	t.Helper()
	lab.Await(t, "one replica to hold the address", func() string {
		lease := c.lease(t)
		if lease.Spec.HolderIdentity == nil || lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > 5*time.Second {
			return fmt.Sprintf("the Lease has no current holder: %+v", lease.Spec)
		}
		macs := arp.Holders(500 * time.Millisecond)
		if want := lease.Annotations["mac."+v1alpha1.GroupName+"/"+*lease.Spec.HolderIdentity]; !slices.Equal(macs, []string{want}) {
			return fmt.Sprintf("%s has the Lease with MAC address %s, but %q claim the address", *lease.Spec.HolderIdentity, want, macs)
		}
		holder, other = nil, nil
		for _, pod := range c.pods(t, v1alpha1.ComponentProxy) {
			switch {
			case !ready(&pod):
				return state(&pod)
			case pod.Name == *lease.Spec.HolderIdentity:
				holder = &pod
			default:
				other = &pod
			}
		}
		if holder == nil || other == nil {
			return "the proxy has not two Pods, one of which has the Lease"
		}
		return ""
	})
	return holder, other
}

// lease returns the Lease of the floating address.
func (c *twoNodes) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := c.cp.Kube(t).CoordinationV1().Leases("clusters").Get(t.Context(), "demo-proxy-address", metav1.GetOptions{})
	lab.Must(t, err)
	return lease
}

// awaitMetrics waits until only the holder's metrics report that it holds the address. Alerts use these
// metrics.
func (c *twoNodes) awaitMetrics(t *testing.T, holder *corev1.Pod) {
	t.Helper()
	lab.Await(t, "the metrics to report the holder", func() string {
		for _, pod := range c.pods(t, v1alpha1.ComponentProxy) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			text, err := c.cp.Kube(t).CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, "9906", "metrics", nil).DoRaw(ctx)
			want := "\nxdsd_hold_holding 0\n"
			if pod.Name == holder.Name {
				want = "\nxdsd_hold_holding 1\n"
			}
			if err != nil || !strings.Contains(string(text), want) {
				return fmt.Sprintf("%s: error %v; %q is not in\n%s", pod.Name, err, want, text)
			}
		}
		return ""
	})
}

// node returns the node of a Pod, or nil if the Pod is not scheduled.
func (c *twoNodes) node(pod *corev1.Pod) *lab.Node {
	for _, n := range c.nodes {
		if n.Name() == pod.Spec.NodeName {
			return n
		}
	}
	return nil
}

// ready waits until all Pods are ready and no node has taints.
func (c *twoNodes) ready(t *testing.T) {
	t.Helper()
	lab.Await(t, "everything to be ready", func() string {
		nodes, err := c.cp.Kube(t).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for i := range nodes.Items {
			if len(nodes.Items[i].Spec.Taints) > 0 {
				return fmt.Sprintf("node %s has taints %v", nodes.Items[i].Name, nodes.Items[i].Spec.Taints)
			}
		}
		return c.unready(t)
	})
}

// unready returns the state of the first Pod that is not ready, or "".
func (c *twoNodes) unready(t *testing.T) string {
	t.Helper()
	for _, pod := range c.pods(t, "") {
		if !ready(&pod) || pod.DeletionTimestamp != nil {
			return state(&pod)
		}
	}
	return ""
}

// awaitReplacement waits until another Pod of the same name is ready, on any node.
func (c *twoNodes) awaitReplacement(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	lab.Await(t, "another Pod "+pod.Name+" to be ready", func() string {
		now, err := c.cp.Kube(t).CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err.Error()
		case now.UID == pod.UID || !ready(now):
			return state(now)
		}
		return ""
	})
}

// cordon makes a node unschedulable or schedulable.
func (s *site) cordon(t *testing.T, n *lab.Node, closed bool) {
	t.Helper()
	_, err := s.cp.Kube(t).CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), n.Name(), types.StrategicMergePatchType, fmt.Appendf(nil, `{"spec": {"unschedulable": %t}}`, closed), metav1.PatchOptions{})
	lab.Must(t, err)
}

// evict evicts a Pod like kubectl drain: it retries while a PodDisruptionBudget prevents the eviction.
func (c *twoNodes) evict(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	lab.Await(t, "Pod "+pod.Name+" to be evicted", func() string {
		if err := c.tryEvict(t, pod, metav1.DeleteOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (c *twoNodes) tryEvict(t *testing.T, pod *corev1.Pod, how metav1.DeleteOptions) error {
	t.Helper()
	return c.cp.Kube(t).PolicyV1().Evictions(pod.Namespace).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, DeleteOptions: &how,
	})
}

// drain evicts this project's Pods from a node. While one replica of a component is unavailable, a
// PodDisruptionBudget must prevent the eviction of the other.
func (c *twoNodes) drain(t *testing.T, n *lab.Node) {
	t.Helper()
	c.cordon(t, n, true)
	before := c.pods(t, "")
	for _, pod := range before {
		if c.node(&pod) != n {
			continue
		}
		c.evict(t, &pod)
		for _, other := range before {
			component := other.Labels[v1alpha1.LabelComponent]
			if other.Name == pod.Name || other.Namespace != "clusters" || component != pod.Labels[v1alpha1.LabelComponent] {
				continue
			}
			if err := c.tryEvict(t, &other, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsTooManyRequests(err) {
				t.Errorf("%s was evicted, and the eviction of %s would also be allowed: %v", pod.Name, other.Name, err)
			}
		}
	}
	lab.Await(t, "the Pods to be ready on the other node", func() string {
		for _, pod := range c.pods(t, "") {
			if at := c.node(&pod); at == nil || at == n {
				return state(&pod)
			}
		}
		return c.unready(t)
	})
}

// spreadReplicas moves the replicas of each component to different nodes. After a drain, or a long outage of
// a node, both may be on one node.
func (c *twoNodes) spreadReplicas(t *testing.T) {
	t.Helper()
	for _, component := range []string{v1alpha1.ComponentProxy, v1alpha1.ComponentDNS, v1alpha1.ComponentDHCP} {
		lab.Await(t, "the replicas of "+component+" to be on two nodes", func() string {
			pods := c.pods(t, component)
			if len(pods) != 2 {
				return fmt.Sprintf("%d Pods exist", len(pods))
			}
			if c.node(&pods[0]) == c.node(&pods[1]) {
				c.evict(t, &pods[1])
				c.awaitReplacement(t, &pods[1])
				return "they were on one node"
			}
			return ""
		})
	}
	c.ready(t)
}

// logHolders logs the ends of the logs of all xdsd hold containers.
func (c *twoNodes) logHolders(t *testing.T) {
	t.Helper()
	for _, pod := range c.pods(t, v1alpha1.ComponentProxy) {
		log, err := podLog(t, c.cp, &pod, &corev1.PodLogOptions{Container: "holder", TailLines: new(int64(40))})
		t.Logf("%s on %s: %v\n%s", pod.Name, pod.Spec.NodeName, err, log)
	}
}
