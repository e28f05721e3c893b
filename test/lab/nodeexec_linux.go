package lab

import (
	"crypto/rand"
	"slices"
	"strings"
)

// ExecLine returns a command line that runs args in a container, like kubectl exec but without kubectl. id is
// the container's ID in the status of its Pod. The command has the container's environment and working
// directory.
func (n *Node) ExecLine(id string, args ...string) []string {
	exec := []string{"ctr", "--namespace=k8s.io", "tasks", "exec", "--exec-id=" + strings.ToLower(rand.Text()[:8]), strings.TrimPrefix(id, "containerd://")}
	return n.box.entering(slices.Concat(exec, args))
}
