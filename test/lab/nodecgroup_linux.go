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

// cgroupRoot is where cgroups are mounted: the one hierarchy of version 2, or a folder for each
// hierarchy of version 1.
const cgroupRoot = "/sys/fs/cgroup"

// kubeletControllers are those that a kubelet uses. It refuses a cgroup root that lacks one of
// those that the machine has.
var kubeletControllers = []string{"cpu", "cpuset", "memory", "hugetlb", "pids"}

// unifiedCgroups reports whether the machine has cgroups of version 2 alone.
func unifiedCgroups() bool {
	var mounted unix.Statfs_t
	return unix.Statfs(cgroupRoot, &mounted) == nil && mounted.Type == unix.CGROUP2_SUPER_MAGIC
}

// cgroupsMissing names what the machine's cgroups lack for a node; empty if nothing.
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

// availableControllers are those of cgroups v2 that a kubelet uses and the machine has.
func availableControllers() []string {
	text, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(strings.Fields(string(text)), func(name string) bool { return !slices.Contains(kubeletControllers, name) })
}

// makeCgroup creates a cgroup for a node, in every hierarchy.
func makeCgroup(name string) error {
	if err := makeCgroups(name); err != nil {
		return fmt.Errorf("creating cgroup %s: %w", name, err)
	}
	return nil
}

func makeCgroups(name string) error {
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

// makeUnifiedCgroup has the cgroup pass its controllers on, too. While it does, systemd cannot
// disable them in the root, which it does with controllers that none of its units uses.
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

// makeLegacyCgroup creates the cgroup in one hierarchy of version 1.
func makeLegacyCgroup(parent, name string) error {
	dir := filepath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // empty in a new one, which can have no processes then
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
