package measure

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// AllowedCPUs returns the CPUs that this process may use, ascending.
func AllowedCPUs() ([]int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("finding CPUs: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			return parseCPUs(strings.TrimSpace(text))
		}
	}
	return nil, errors.New("finding CPUs: /proc/self/status has no Cpus_allowed_list")
}

// SeparateCPUs returns a CPU for the measured process and one for its load: the first and the last allowed one, which
// are the least likely to share a core. Both are nil if only one CPU is allowed.
func SeparateCPUs() (measured, load *int, err error) {
	cpus, err := AllowedCPUs()
	if err != nil || len(cpus) < 2 {
		return nil, nil, err
	}
	return &cpus[0], &cpus[len(cpus)-1], nil
}

// parseCPUs parses a list such as "0-1,4".
func parseCPUs(text string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("list of CPUs %q: %w", text, err)
		}
		to, err := strconv.Atoi(last)
		if err != nil {
			return nil, fmt.Errorf("list of CPUs %q: %w", text, err)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// clockTick is the unit of /proc/stat, on all platforms that Go supports.
const clockTick = 10 * time.Millisecond

// MachineTime returns how long all CPUs together were busy since boot, including steal time.
func MachineTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("reading the machine's CPU time: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	// cpu user nice system idle iowait irq softirq steal guest guest_nice; user includes guest.
	fields := strings.Fields(first)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, fmt.Errorf("reading the machine's CPU time: /proc/stat begins with %q", first)
	}
	var busy time.Duration
	for i, field := range fields[1:9] {
		if i == 3 || i == 4 { // idle, iowait
			continue
		}
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the machine's CPU time: %w", err)
		}
		busy += time.Duration(ticks) * clockTick
	}
	return busy, nil
}

// ProcessTime returns the CPU time that a process has used, in nanoseconds, from the process's CPU clock, whose ID
// derives from the PID (see clock_getcpuclockid(3)).
func ProcessTime(pid int) (time.Duration, error) {
	const allThreads = 2
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|allThreads), &now); err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(now.Nano()), nil
}
