package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// NodeConfig is the configuration of a node. The zero value is valid.
type NodeConfig struct {
	// Name is the name of the Node. The default is node1, node2 and so on.
	Name string
	// Bridges are the VLANs of the node, by the names of their bridges, which have at most ten characters.
	// For each VLAN there is a bridge on every node, for Pods, and one in the test's network, for machines
	// (NewMachine). Cables connect the nodes' bridges to the latter.
	Bridges []string
	// VM makes the node a simulated VM called Name, without other networks.
	VM *NodeVM
	// Images are names of built images, which are imported while the node starts.
	Images []string
	// RegistryCAs are the certificates, as PEM, of the authorities that the node trusts for registries, by host and port.
	// A node pulls no image that it has.
	RegistryCAs map[string][]byte
}

// A Node runs Pods with containerd, runc, kubelet, kube-proxy and CNI with Multus. It has separate namespaces,
// and leaves no processes, mounts or files on the host, however it ends.
type Node struct {
	config NodeConfig
	number int // unique in this process, from 1
	cp     *ControlPlane
	box    *box

	address netip.Addr // InternalIP

	mu                                   sync.Mutex // guards the fields below
	containerd, kubelet, proxy, apiProxy *process
	stopped                              bool
}

var nodes atomic.Int32 // number of nodes that this process has started

// StartNode adds a node to a control plane, installs the CRD NetworkAttachmentDefinition, and returns when
// the node is ready. The context bounds only the start: the node runs until Stop, or until this process ends.
//
// It must be called in a Network, after PrepareNode. The Address of the control plane must belong to the
// Network, and the control plane needs ControllerManager and Scheduler. Service kubernetes in namespace
// default is routed to the API server; on VMs through HAProxy, as with HyperShift.
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
	group, ctx := errgroup.WithContext(ctx)
	for _, image := range n.config.Images {
		group.Go(func() error { return n.ImportImage(ctx, image) })
	}
	group.Go(func() error {
		if err := n.startKubernetes(ctx); err != nil {
			return err
		}
		return n.await(ctx, "the node to be ready", n.ready)
	})
	return group.Wait()
}

// check returns an error if a requirement of StartNode is not met, because later errors would be harder to
// understand.
func (n *Node) check() error {
	address, err := netip.ParseAddr(n.cp.config.Address)
	switch {
	case len(NodeMissing()) > 0:
		return fmt.Errorf("missing: %s", strings.Join(NodeMissing(), ", "))
	case !insideNetworkNow():
		return errors.New("StartNode must be called in a Network")
	case err != nil || address.IsLoopback():
		return fmt.Errorf("nodes cannot reach the API server at %s; set Config.Address to an address of the Network", n.cp.config.Address)
	case !n.cp.config.ControllerManager || !n.cp.config.Scheduler:
		return errors.New("the control plane lacks a controller manager or a scheduler; set Config.ControllerManager and Config.Scheduler")
	}
	return nil
}

// ready returns an error unless the Node is ready and without taints.
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

// Stop ends the node like a power failure, waits until all its processes have ended, and removes its files,
// cgroups and route. Its Node object stays. Further calls do nothing.
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

// Address returns the node's InternalIP.
func (n *Node) Address() netip.Addr { return n.address }

// Logs returns the last lines of each component's log.
func (n *Node) Logs() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return logTails(n.config.Name, n.processes())
}

// processes returns the processes of all components; nil for those that were not started. The caller must
// hold n.mu.
func (n *Node) processes() []*process {
	return []*process{n.containerd, n.kubelet, n.proxy, n.apiProxy}
}

func (n *Node) await(ctx context.Context, what string, try func(context.Context) error) error {
	failure := func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		return firstFailure(n.processes())
	}
	return await(ctx, what, failure, n.Logs, try)
}

// launch starts a component on the node.
func (n *Node) launch(p **process, name string, args ...string) (err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	*p, err = n.box.start(name, args...)
	return err
}
