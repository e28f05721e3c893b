package lab

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Memory returns the resident memory of a process in MB (2^20 bytes), and the part of it that is not pages of files, which
// the kernel cannot reclaim.
func Memory(tb testing.TB, pid int) (resident, anonymous float64) {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Must(tb, err)
	megabytes := func(field string) float64 {
		_, rest, _ := strings.Cut(string(text), "\n"+field+":")
		rest, _, _ = strings.Cut(rest, " kB")
		kilobytes, err := strconv.Atoi(strings.TrimSpace(rest))
		Must(tb, err)
		return float64(kilobytes) / 1024
	}
	return megabytes("VmRSS"), megabytes("RssAnon")
}

// CPUTime returns the CPU time that a process has used, from the process's CPU clock, whose ID derives from the PID (see
// clock_getcpuclockid(3)).
func CPUTime(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	const allThreads = 2
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|allThreads), &now); err != nil {
		tb.Fatalf("reading the CPU time of process %d: %v", pid, err)
	}
	return time.Duration(now.Nano())
}

// ContainerPID returns the first process of a container on any node. id is the container's ID in the status of its Pod.
func ContainerPID(tb testing.TB, id string) int {
	tb.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	Must(tb, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && bytes.Contains(text, []byte(strings.TrimPrefix(id, "containerd://"))) { // else the process has ended
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			Must(tb, err)
			return pid
		}
	}
	tb.Fatalf("container %s has no process", id)
	return 0
}
