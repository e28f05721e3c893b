package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// NodeConfig says what node to start. The zero value will do.
type NodeConfig struct {
	// Name is the Node's; node1, node2 and so on by default.
	Name string
	// Bridges are the VLANs that the node is on, each by the name of its bridge. There
	// is a bridge of that name on every node that is on the VLAN, for Pods, and one in the
	// test's own network, for machines (NewMachine); cables connect them. A name has no more
	// than ten letters.
	Bridges []string
	// VM has the node be a virtual machine, of which Name is the name; it is on no other network.
	VM *NodeVM
	// Logf reports progress. The default writes to standard error.
	Logf Logf
}

// A Node is a machine that runs Pods: containerd with runc, kubelet, kube-proxy, and CNI with
// Multus. It is in namespaces of its own, and leaves nothing on the machine, however
// it ends.
type Node struct {
	config NodeConfig
	number int // its own among those of this process, from 1
	cp     *ControlPlane
	box    *box

	address netip.Addr // its InternalIP

	mu                                   sync.Mutex // guards what follows
	containerd, kubelet, proxy, apiProxy *process
	stopped                              bool
}

var nodes atomic.Int32 // how many this process has started

// StartNode starts a node of a control plane, with the NetworkAttachmentDefinition CRD, and
// returns when it is ready for Pods. The context bounds the start only: the node runs until
// Stop, or until this process ends.
//
// This has to be in a Network, of which the control plane's Address is one, and the control
// plane needs its ControllerManager and Scheduler. PrepareNode has to be called before.
// Service kubernetes in namespace default leads to the API server; on virtual machines, by
// HAProxy, as HyperShift has it.
func StartNode(ctx context.Context, cp *ControlPlane, config NodeConfig) (*Node, error) {
	number := int(nodes.Add(1))
	if config.Name == "" {
		config.Name = fmt.Sprintf("node%d", number)
	}
	n := &Node{config: config, number: number, cp: cp}
	if err := n.start(ctx); err != nil {
		return nil, fmt.Errorf("starting node %s: %w", config.Name, errors.Join(err, n.Stop()))
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) (err error) {
	if err := n.check(); err != nil {
		return err
	}
	if !n.cp.attached {
		if err := n.cp.InstallCRDs(ctx, NetworkAttachmentDefinition); err != nil {
			return err
		}
	}
	published := netip.AddrPortFrom(netip.MustParseAddr(n.cp.config.Address), uint16(n.cp.ports.apiServer))
	connect := n.connect
	if n.config.VM != nil {
		published, connect = inClusterAPI, n.boot
	}
	if err := n.cp.publish(ctx, published); err != nil {
		return err
	}
	if n.box, err = newBox(ctx, n.config.Name); err != nil {
		return err
	}
	if err := connect(ctx); err != nil {
		return err
	}
	if err := n.startContainerd(ctx); err != nil {
		return err
	}
	if err := n.startKubernetes(ctx); err != nil {
		return err
	}
	return n.await(ctx, "it to be ready", n.ready)
}

// check finds what would make for stranger errors later.
func (n *Node) check() error {
	address, err := netip.ParseAddr(n.cp.config.Address)
	switch {
	case len(NodeMissing()) > 0:
		return fmt.Errorf("missing: %s", strings.Join(NodeMissing(), ", "))
	case !insideNetworkNow():
		return errors.New("it needs a Network around it")
	case err != nil || address.IsLoopback():
		return fmt.Errorf("no node reaches the API server at %s: give its Config an Address of the Network's", n.cp.config.Address)
	case !n.cp.config.ControllerManager || !n.cp.config.Scheduler:
		return errors.New("the control plane needs its ControllerManager and Scheduler")
	}
	return nil
}

// ready looks for a Node that Pods can be scheduled to.
func (n *Node) ready(ctx context.Context) error {
	client, err := kubernetes.NewForConfigAndClient(n.cp.RESTConfig(), n.cp.clients.http)
	if err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, n.config.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(node.Spec.Taints) > 0 {
		return fmt.Errorf("taints %v", node.Spec.Taints)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("conditions %v", node.Status.Conditions)
}

// Stop ends the node as a power cut would, waits until all its processes are gone, and
// removes what it has left. Its Node object stays. Stopping twice is fine.
func (n *Node) Stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped || n.box == nil {
		return nil
	}
	n.stopped = true
	if err := errors.Join(n.box.stop(), n.disconnect()); err != nil {
		return fmt.Errorf("stopping node %s: %w", n.config.Name, err)
	}
	return nil
}

// Name returns the name of the Node.
func (n *Node) Name() string { return n.config.Name }

// Address returns the node's own address, its InternalIP.
func (n *Node) Address() netip.Addr { return n.address }

// Logs returns the last lines that each component has logged.
func (n *Node) Logs() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return logTails(n.config.Name, n.processes())
}

// processes needs n.mu held. Those that were not started are nil.
func (n *Node) processes() []*process {
	return []*process{n.containerd, n.kubelet, n.proxy, n.apiProxy}
}

func (n *Node) await(ctx context.Context, what string, try func(context.Context) error) error {
	dead := func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		return firstDead(n.processes())
	}
	return await(ctx, what, dead, n.Logs, try)
}

// launch starts a component on the node.
func (n *Node) launch(p **process, name string, args ...string) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*p, err = n.box.start(name, args...)
	return err
}
