package lab

import (
	"crypto/rand"
	"slices"
	"strings"
)

// ExecLine is the command line that runs a command in a container, which the status of its Pod
// names, as kubectl exec does; it takes no kubectl. The command has the container's environment
// and working directory.
func (n *Node) ExecLine(id string, args ...string) []string {
	exec := []string{"ctr", "--namespace=k8s.io", "tasks", "exec", "--exec-id=" + strings.ToLower(rand.Text()[:8]), strings.TrimPrefix(id, "containerd://")}
	return n.box.entering(slices.Concat(exec, args))
}
