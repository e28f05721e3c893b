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

// cniPlugins are the plugins of the CNI project that a node has in addition to Multus.
var cniPlugins = []string{"bridge", "host-local", "loopback", "ptp", "sbr", "static"}

// cniPluginDir returns the directory in which the distribution installs cniPlugins.
func cniPluginDir() string {
	dirs := []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}
	i := slices.IndexFunc(dirs, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "bridge"))
		return err == nil
	})
	return dirs[max(i, 0)]
}

// NodeMissing returns the requirements of StartNode that this host lacks, and which of the additional
// commands in more.
func NodeMissing(more ...string) []string {
	var missing []string
	if !isMachineRoot() {
		missing = append(missing, "root privileges")
	}
	if tooFew := watchLimitProblem(); tooFew != "" {
		missing = append(missing, tooFew)
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

// isMachineRoot reports whether this process is root outside of a user namespace.
func isMachineRoot() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return os.Geteuid() == 0 && err == nil && slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
}

// NeedNode skips a test, or fails it in CI, if the host lacks a requirement of StartNode or one of the
// commands in more.
func NeedNode(tb testing.TB, more ...string) {
	tb.Helper()
	need(tb, NodeMissing(more...), "make deps installs commands and plugins")
}

// need skips a test, or fails it in CI, unless missing is empty.
func need(tb testing.TB, missing []string, remedy string) {
	tb.Helper()
	if len(missing) == 0 {
		return
	}
	report := tb.Skipf
	if os.Getenv("CI") != "" {
		report = tb.Fatalf
	}
	report("missing: %s; %s", strings.Join(missing, ", "), remedy)
}

// PrepareNode builds and downloads what StartNode needs. It must be called outside of a Network, where
// nothing can be downloaded.
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
