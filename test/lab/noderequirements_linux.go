package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cniPlugins are the plugins of the CNI project that a node has in addition to Multus.
var cniPlugins = []string{"bridge", "host-local", "loopback", "ptp", "sbr", "static"}

// cniPluginDir returns the folder in which the distribution installs cniPlugins.
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
	if n := raiseWatchLimit(); n < minWatches {
		missing = append(missing, fmt.Sprintf("%d instances of inotify: the limit is %d; 'sysctl fs.inotify.max_user_instances=%[1]d' sets it", minWatches, n))
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

// minWatches is the number of inotify instances that root should be allowed: the processes of all nodes share the limit, tests of
// several packages start nodes at a time, and a developer may have another lab. The kernel's default is 128.
const minWatches = 1024

const watchLimit = "/proc/sys/fs/inotify/max_user_instances"

// raiseWatchLimit raises the number of inotify instances that each user may have to minWatches, if this process may do that. It
// returns the limit.
func raiseWatchLimit() (limit int) {
	read := func() int {
		text, err := os.ReadFile(watchLimit)
		if err != nil {
			return minWatches // nothing limits them here
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return minWatches
		}
		return n
	}
	if limit = read(); limit < minWatches && os.WriteFile(watchLimit, []byte(strconv.Itoa(minWatches)), 0o600) == nil { // the mode of an existing file stays
		return read()
	}
	return limit
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
