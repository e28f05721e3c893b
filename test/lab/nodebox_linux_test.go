package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBoxLeavesNothing checks that the processes, cgroups and folder of a box are removed when it is stopped.
func TestBoxLeavesNothing(t *testing.T) {
	NeedNode(t)
	b := startTestBox(t)
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if left := leftovers(b.dir, b.cgroup); left != "" {
		t.Error(left)
	}
}

// TestBoxLeavesNothingWhenKilled is TestBoxLeavesNothing for a box whose parent is killed.
func TestBoxLeavesNothingWhenKilled(t *testing.T) {
	NeedNode(t)
	line := asHelper(t, func() string { b := startTestBox(t); return b.dir + " " + b.cgroup })
	dir, cgroup, _ := strings.Cut(line, " ")
	Await(t, "the removal of a box", func() string { return leftovers(dir, cgroup) })
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
	Poll(t, "the process in a box", func() bool {
		if !p.running() {
			t.Fatal(p.failure())
		}
		_, err := os.Stat(b.path("log", "works"))
		return err == nil
	})
	return b
}

// leftovers returns the folder and the cgroups of a box that still exist.
func leftovers(dir, cgroup string) string {
	var found []string
	for _, path := range []string{dir, filepath.Join(cgroupRoot, cgroup), filepath.Join(cgroupRoot, "*", cgroup)} {
		matches, _ := filepath.Glob(path) // the pattern is valid
		found = append(found, matches...)
	}
	return strings.Join(found, ", ")
}

// memoryCgroup returns the folder of a cgroup in the hierarchy that limits memory.
func memoryCgroup(name string) string {
	if unifiedCgroups() {
		return filepath.Join(cgroupRoot, name)
	}
	return filepath.Join(cgroupRoot, "memory", name)
}

// TestMainThreadStaysInItsNamespace enters namespaces from many goroutines. Cable tells other programs the
// namespace of this process by /proc/PID/ns/net, which is that of the main thread.
func TestMainThreadStaysInItsNamespace(t *testing.T) {
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			err := restoringNamespace(func() error {
				if unix.Gettid() == os.Getpid() {
					return errors.New("the main thread can be in another namespace")
				}
				time.Sleep(time.Millisecond)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
