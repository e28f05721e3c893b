package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot is the mount point of cgroups: of the only hierarchy of version 2, or of a directory for each
// hierarchy of version 1.
const cgroupRoot = "/sys/fs/cgroup"

// kubeletControllers are the controllers that a kubelet uses. A kubelet rejects a cgroup root that lacks one
// of them that the host has.
var kubeletControllers = []string{"cpu", "cpuset", "memory", "hugetlb", "pids"}

// unifiedCgroups reports whether the host has only cgroups v2.
func unifiedCgroups() bool {
	var mounted unix.Statfs_t
	return unix.Statfs(cgroupRoot, &mounted) == nil && mounted.Type == unix.CGROUP2_SUPER_MAGIC
}

// cgroupsMissing returns what the host's cgroups lack for a node, or "".
func cgroupsMissing() string {
	if unifiedCgroups() {
		if !slices.Contains(availableControllers(), "memory") {
			return "the memory controller of cgroups v2 (" + cgroupRoot + "/cgroup.controllers)"
		}
		return ""
	}
	if _, err := os.Stat(filepath.Join(cgroupRoot, "memory", "cgroup.procs")); err != nil {
		return "cgroups v2 (" + cgroupRoot + "/cgroup.controllers) or v1 (" + cgroupRoot + "/memory)"
	}
	return ""
}

// availableControllers returns the controllers of cgroups v2 that the host has and a kubelet uses.
func availableControllers() []string {
	text, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(string(text)), func(name string) bool { return !slices.Contains(kubeletControllers, name) })
}

// makeCgroup creates a cgroup for a node in every hierarchy.
func makeCgroup(name string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("creating cgroup %s: %w", name, err)
		}
	}()
	if unifiedCgroups() {
		return makeUnifiedCgroup(filepath.Join(cgroupRoot, name))
	}
	hierarchies, err := filepath.Glob(filepath.Join(cgroupRoot, "*", "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, procs := range hierarchies {
		if err := makeLegacyCgroup(filepath.Dir(procs), name); err != nil {
			return err
		}
	}
	return nil
}

// makeUnifiedCgroup creates a cgroup v2 and enables its controllers for children, too. As long as a child
// uses them, systemd cannot disable them in the root, which it does with controllers that no unit uses.
func makeUnifiedCgroup(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	enable := []byte("+" + strings.Join(availableControllers(), " +"))
	for _, parent := range []string{cgroupRoot, dir} {
		if err := os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), enable, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// makeLegacyCgroup creates a cgroup in one hierarchy of version 1.
func makeLegacyCgroup(parent, name string) error {
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new cgroup, which then accepts no processes
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), value, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
