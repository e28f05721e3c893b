package dhcp

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/bench/measure"
)

// An otherLoad measures the CPU use of other programs, including kernel work that belongs to no process.
type otherLoad struct {
	began         time.Time
	machine, ours time.Duration // CPU times until began
}

func newOtherLoad() (o otherLoad, err error) {
	o.began = time.Now()
	if o.machine, err = measure.MachineTime(); err != nil {
		return otherLoad{}, err
	}
	o.ours, err = ourCPUTime()
	return o, err
}

// share returns the CPU use of other programs since o was created, in CPUs.
func (o otherLoad) share() (float64, error) {
	now, err := newOtherLoad()
	if err != nil {
		return 0, err
	}
	return max(0, float64((now.machine-o.machine)-(now.ours-o.ours))/float64(now.began.Sub(o.began))), nil
}

// ourCPUTime returns the CPU time of this process and of its children, both running and ended.
func ourCPUTime() (time.Duration, error) {
	var ended unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &ended); err != nil {
		return 0, fmt.Errorf("reading our CPU time: %w", err)
	}
	sum, err := measure.ProcessTime(os.Getpid())
	if err != nil {
		return 0, err
	}
	sum += time.Duration(ended.Utime.Nano() + ended.Stime.Nano())
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, file := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil || parent(file) != os.Getpid() {
			continue
		}
		if used, err := measure.ProcessTime(pid); err == nil { // otherwise it has just ended
			sum += used
		}
	}
	return sum, nil
}

// parent returns the parent's PID from a process's stat file, or 0 if the process has ended.
func parent(stat string) int {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0
	}
	// PID (NAME) STATE PARENT; the name may contain spaces and parentheses.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	id, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return id
}
