package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// boxHelper is an environment variable that makes this test binary a helper process, which starts a box and
// is then killed.
const boxHelper = "LAB_TEST_BOX_HELPER"

// TestBoxLeavesNothing checks that the processes, cgroups and folder of a box are removed, whether it is
// stopped or its parent is killed. The box has a process in a nested cgroup, and a mount.
func TestBoxLeavesNothing(t *testing.T) {
	if os.Getenv(boxHelper) != "" {
		b := startTestBox(t)
		fmt.Println("box", b.dir, b.cgroup)
		time.Sleep(time.Minute)
		return
	}
	NeedNode(t)
	t.Run("stopped", func(t *testing.T) {
		b := startTestBox(t)
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		if err := checkRemoved(b.dir, b.cgroup); err != nil {
			t.Error(err)
		}
	})
	t.Run("killed", func(t *testing.T) {
		helper := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBoxLeavesNothing$")
		helper.Env = append(os.Environ(), boxHelper+"=yes")
		helper.Stderr = os.Stderr
		stdout, err := helper.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := helper.Start(); err != nil {
			t.Fatal(err)
		}
		var dir, cgroup string
		if _, err := fmt.Fscanf(stdout, "box %s %s\n", &dir, &cgroup); err != nil {
			t.Error(err)
		}
		if err := helper.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = helper.Wait() // killed
		eventually(t, func() error { return checkRemoved(dir, cgroup) })
	})
}

// startTestBox starts a box with a process that ignores SIGTERM, a nested cgroup and a mount.
func startTestBox(t *testing.T) *box {
	t.Helper()
	b, err := newBox(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.start("work", "sh", "-ec", `
		mkdir $1/deep && echo $$ >$1/deep/cgroup.procs
		mount -t tmpfs tmpfs /var/lib
		touch /var/log/works
		trap "" TERM INT HUP
		sleep 1000`, "work", memoryCgroup(b.cgroup))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := os.Stat(b.path("log", "works"))
		if !p.running() {
			t.Fatal(p.failure())
		}
		return err
	})
	return b
}

// checkRemoved returns an error if the folder or a cgroup of a box still exists.
func checkRemoved(dir, cgroup string) error {
	found, err := filepath.Glob(filepath.Join(cgroupRoot, "*", cgroup))
	if err != nil {
		return err
	}
	if _, err := os.Stat(memoryCgroup(cgroup)); err == nil {
		found = append(found, memoryCgroup(cgroup))
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		found = append(found, dir)
	}
	if len(found) > 0 {
		return fmt.Errorf("not removed: %s", strings.Join(found, ", "))
	}
	return nil
}

// memoryCgroup returns the folder of a cgroup in the hierarchy that limits memory.
func memoryCgroup(name string) string {
	if unifiedCgroups() {
		return filepath.Join(cgroupRoot, name)
	}
	return filepath.Join(cgroupRoot, "memory", name)
}
