package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// loopback is where everything listens.
const loopback = "127.0.0.1"

// startDeadline bounds a server's start, its reading of all objects included.
const startDeadline = 2 * time.Minute

// server is a running CoreDNS.
type server struct {
	name  string
	port  int
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended, with err set
	err   error
}

// start runs CoreDNS with one server block, of these lines, on the CPU given, or on
// any where that is empty. It returns once the first question is answered rightly.
func (b *bench) start(ctx context.Context, name, cpu, block string, first client, q question) (*server, error) {
	ports, err := lab.ReservePorts(ctx, loopback, 1)
	if err != nil {
		return nil, err
	}
	defer ports.Release() // it listens by then
	port := ports.Numbers[0]
	corefile := filepath.Join(b.dir, name+".Corefile")
	text := fmt.Sprintf(".:%d {\n\tbind %s\n%s\n}\n", port, loopback, block)
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing a Corefile: %w", err)
	}
	log, err := os.Create(filepath.Join(b.dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	s := &server{name: name, port: port, ended: make(chan struct{})}
	s.cmd = b.pinned(ctx, cpu, b.coredns, "-conf", corefile)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.ended)
	}()
	if err := s.await(ctx, first, q); err != nil {
		s.stop()
		said, readErr := os.ReadFile(log.Name())
		if readErr != nil {
			return nil, readErr
		}
		return nil, fmt.Errorf("%w; it said:\n%s", err, said)
	}
	return s, nil
}

// await returns when the question is answered rightly.
func (s *server) await(ctx context.Context, as client, q question) error {
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	for {
		err := as.check(ctx, s, q)
		if err == nil {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("%s ended: %w", s.name, s.err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; last: %w", s.name, ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the process and waits for it. Stopping none is fine.
func (s *server) stop() {
	if s == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err == nil {
		<-s.ended
	}
}

// cpuTime returns what the process has used so far.
func (s *server) cpuTime() (time.Duration, error) { return measure.ProcessTime(s.cmd.Process.Pid) }

// memory returns the bytes of the process that are resident.
func (s *server) memory() (int, error) {
	path := fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of %s: %w", s.name, err)
	}
	for line := range strings.Lines(string(text)) {
		value, ok := strings.CutPrefix(line, "VmRSS:")
		if !ok {
			continue
		}
		kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		return kilobytes << 10, nil
	}
	return 0, fmt.Errorf("%s has no VmRSS", path)
}
