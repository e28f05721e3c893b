package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// KillContainer kills all processes of a container with SIGKILL, as the kernel's OOM killer does. id is the
// container's ID in the status of its Pod.
func (n *Node) KillContainer(ctx context.Context, id string) error {
	return n.box.run(ctx, "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", "--all", strings.TrimPrefix(id, "containerd://"))
}

// Reboot powers the node off and on again. Its memory is lost, so all its containers must be started again.
// Reboot returns when containerd, kubelet and kube-proxy run; the status of the Node does not change during
// the reboot.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.powerOff(ctx); err != nil {
		return err
	}
	return n.restart(ctx)
}

// PowerOff simulates a power failure; PowerOn starts the node again. It first disconnects the cables, because
// the kernel closes the connections of killed processes, and a machine without power sends nothing.
func (n *Node) PowerOff(ctx context.Context) error {
	if err := n.setAllCables("down"); err != nil {
		return err
	}
	return n.powerOff(ctx)
}

// PowerOn starts a node after PowerOff, as Reboot does.
func (n *Node) PowerOn(ctx context.Context) error {
	if err := n.setAllCables("up"); err != nil {
		return err
	}
	return n.restart(ctx)
}

// Run runs a command in the node's namespaces.
func (n *Node) Run(ctx context.Context, line ...string) error { return n.box.run(ctx, line...) }

// Unplug disconnects the node's cable to a VLAN, given by the name of its bridge, or, if bridge is "", the
// cable to the control plane and other nodes. Plug connects it again.
func (n *Node) Unplug(bridge string) error { return n.setCable(bridge, "down") }

// Plug connects a cable again after Unplug.
func (n *Node) Plug(bridge string) error { return n.setCable(bridge, "up") }

// setAllCables calls setCable for all cables of a node that is not a VM.
func (n *Node) setAllCables(state string) error {
	var errs []error
	for _, bridge := range append([]string{""}, n.config.Bridges...) {
		errs = append(errs, n.setCable(bridge, state))
	}
	return errors.Join(errs...)
}

func (n *Node) setCable(bridge, state string) error {
	if err := ip("link", "set", cableName(cmp.Or(bridge, nodeBridge), n.number), state); err != nil {
		return fmt.Errorf("setting the cable of node %s %s: %w", n.config.Name, state, err)
	}
	return nil
}

func (n *Node) powerOff(ctx context.Context) error {
	if err := n.box.run(ctx, "sh", "-c", powerOffScript, "power-off", n.box.cgroup); err != nil {
		return err
	}
	n.mu.Lock()
	processes := n.processes()
	n.containerd, n.kubelet, n.proxy, n.apiProxy = nil, nil, nil, nil
	n.mu.Unlock()
	for _, p := range processes {
		if err := p.kill(); err != nil { // its process has been killed; kill waits for its end
			return err
		}
	}
	return nil
}

func (n *Node) restart(ctx context.Context) error {
	if err := n.runContainerd(ctx); err != nil {
		return err
	}
	return n.startKubernetes(ctx)
}
