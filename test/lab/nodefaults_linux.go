package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// KillContainer kills the processes of a container, which the status of its Pod names, as the
// kernel does where memory has run out.
func (n *Node) KillContainer(ctx context.Context, id string) error {
	return n.box.run(ctx, "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", "--all", strings.TrimPrefix(id, "containerd://"))
}

// Reboot cuts the node's power, and starts it again: nothing is left of what it had in memory,
// so that every Pod has to be started anew. It returns when containerd, kubelet and kube-proxy
// run; the Node object says all the while what it said last.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.reboot(ctx); err != nil {
		return fmt.Errorf("rebooting node %s: %w", n.config.Name, err)
	}
	return nil
}

func (n *Node) reboot(ctx context.Context) error {
	if err := n.cut(ctx); err != nil {
		return err
	}
	return n.restart(ctx)
}

// PowerOff cuts the node's power. PowerOn starts it again. The cables come first: a kernel closes
// the connections of processes that are killed, and one without power says nothing.
func (n *Node) PowerOff(ctx context.Context) error {
	err := n.plugAll("down")
	if err == nil {
		err = n.cut(ctx)
	}
	if err != nil {
		return fmt.Errorf("cutting the power of node %s: %w", n.config.Name, err)
	}
	return nil
}

// PowerOn starts a node whose power was cut, as Reboot does.
func (n *Node) PowerOn(ctx context.Context) error {
	err := n.plugAll("up")
	if err == nil {
		err = n.restart(ctx)
	}
	if err != nil {
		return fmt.Errorf("starting node %s again: %w", n.config.Name, err)
	}
	return nil
}

// Unplug pulls the node's cable to a VLAN, by the name of its bridge, or with "" the one to
// the control plane and to other nodes. Plug puts it back.
func (n *Node) Unplug(bridge string) error { return n.plug(bridge, "down") }

// Plug puts a cable back that was unplugged.
func (n *Node) Plug(bridge string) error { return n.plug(bridge, "up") }

// plugAll is plug for all cables of a node that is no virtual machine.
func (n *Node) plugAll(state string) error {
	var errs []error
	for _, bridge := range append([]string{""}, n.config.Bridges...) {
		errs = append(errs, n.plug(bridge, state))
	}
	return errors.Join(errs...)
}

func (n *Node) plug(bridge, state string) error {
	if err := ip("link", "set", cableName(cmp.Or(bridge, nodeBridge), n.number), state); err != nil {
		return fmt.Errorf("taking the cable of node %s %s: %w", n.config.Name, state, err)
	}
	return nil
}

func (n *Node) cut(ctx context.Context) error {
	if err := n.box.run(ctx, "sh", "-c", cutScript, "cut", n.box.cgroup); err != nil {
		return err
	}
	n.mu.Lock()
	before := n.processes()
	n.containerd, n.kubelet, n.proxy, n.apiProxy = nil, nil, nil, nil
	n.mu.Unlock()
	for _, p := range before {
		if err := p.kill(); err != nil { // it is about to end, which is waited for
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
