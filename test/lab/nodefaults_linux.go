package lab

import (
	"context"
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
	if err := n.runContainerd(ctx); err != nil {
		return err
	}
	return n.startKubernetes(ctx)
}
