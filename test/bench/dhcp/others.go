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

// others tells how much of one CPU programs took that are not ours, the part of the kernel
// that works for nobody in particular among them.
type others struct {
	began         time.Time
	machine, ours time.Duration
}

func watchOthers() (o others, err error) {
	o.began = time.Now()
	if o.machine, err = measure.MachineTime(); err != nil {
		return others{}, err
	}
	o.ours, err = ourTime()
	return o, err
}

// share returns it, since the beginning.
func (o others) share() (float64, error) {
	now, err := watchOthers()
	if err != nil {
		return 0, err
	}
	return max(0, float64((now.machine-o.machine)-(now.ours-o.ours))/float64(now.began.Sub(o.began))), nil
}

// ourTime is the CPU time of this process and of its children, those that have ended and those
// that run.
func ourTime() (time.Duration, error) {
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
		if used, err := measure.ProcessTime(pid); err == nil { // else it has just ended
			sum += used
		}
	}
	return sum, nil
}

// parent reads a process's parent from its stat file; 0 where the process has ended.
func parent(stat string) int {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0
	}
	// pid (name) state parent; the name may hold anything.
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
