package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cniPlugins are those of the CNI project that a node has, beside Multus.
var cniPlugins = []string{"bridge", "host-local", "loopback", "ptp", "sbr", "static"}

// cniPluginDir is where a distribution installs them.
func cniPluginDir() string {
	dirs := []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}
	i := slices.IndexFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "bridge"))
		return err == nil
	})
	return dirs[max(i, 0)]
}

// NodeMissing names what this machine lacks for StartNode, and for more commands.
func NodeMissing(more ...string) []string {
	var missing []string
	if !isMachineRoot() {
		missing = append(missing, "the rights of root")
	}
	if cgroups := cgroupsMissing(); cgroups != "" {
		missing = append(missing, cgroups)
	}
	commands := []string{"containerd", "ctr", "runc", "nft", "ip", "mount", "nsenter", "buildah"}
	for _, command := range slices.Concat(commands, more) {
		if _, err := exec.LookPath(command); err != nil {
			missing = append(missing, "the command "+command)
		}
	}
	for _, plugin := range cniPlugins {
		if _, err := os.Stat(filepath.Join(cniPluginDir(), plugin)); err != nil {
			missing = append(missing, "the CNI plugin "+plugin)
		}
	}
	return missing
}

// isMachineRoot is false for the root of a namespace of users.
func isMachineRoot() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return os.Geteuid() == 0 && err == nil && slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
}

// NeedNode skips a test where StartNode cannot work, or more commands are missing. In CI it
// fails the test.
func NeedNode(tb testing.TB, more ...string) {
	tb.Helper()
	need(tb, NodeMissing(more...), "make deps installs commands and plugins")
}

// need skips a test for want of what is missing, and in CI fails it.
func need(tb testing.TB, missing []string, remedy string) {
	tb.Helper()
	if len(missing) == 0 {
		return
	}
	say := tb.Skipf
	if os.Getenv("CI") != "" {
		say = tb.Fatalf
	}
	say("missing: %s; %s", strings.Join(missing, ", "), remedy)
}

// PrepareNode builds what StartNode needs: there is no way to download anything in a Network.
func PrepareNode(ctx context.Context, logf Logf) error {
	for _, build := range []func(context.Context, Logf) (string, error){Build, BuildMultus} {
		if _, err := build(ctx, logf); err != nil {
			return err
		}
	}
	if err := buildPause(ctx, logf); err != nil {
		return err
	}
	if _, err := CRDs(ctx, NetworkAttachmentDefinition); err != nil {
		return fmt.Errorf("preparing a node: %w", err)
	}
	return nil
}
