package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/densityops/oooi/test/bench/measure"
	"github.com/densityops/oooi/test/lab"
)

// loopback is where everything listens.
const loopback = "127.0.0.1"

// server is a running CoreDNS.
type server struct {
	*measure.Process

	name string
	port int
}

// start runs CoreDNS with one server block, of these lines, on the CPU given, or on
// any where that is nil. It returns once the first question is answered rightly.
func (b *bench) start(ctx context.Context, name string, cpu *int, block string, first client, q question) (*server, error) {
	ports, err := lab.ReservePorts(ctx, loopback, 1)
	if err != nil {
		return nil, err
	}
	defer ports.Release() // it listens by then
	port := ports.Numbers[0]
	corefile := filepath.Join(b.Dir, name+".Corefile")
	text := fmt.Sprintf(".:%d {\n\tbind %s\n%s\n}\n", port, loopback, block)
	if err := os.WriteFile(corefile, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing a Corefile: %w", err)
	}
	s := &server{name: name, port: port}
	s.Process, err = measure.Start(name, filepath.Join(b.Dir, name+".log"), measure.Pinned(ctx, cpu, b.coredns, "-conf", corefile))
	if err != nil {
		return nil, err
	}
	if err := s.Await(ctx, func(ctx context.Context) error { return first.check(ctx, s, q) }); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// memory returns the bytes of the process that are resident.
func (s *server) memory() (int, error) {
	path := fmt.Sprintf("/proc/%d/status", s.PID())
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
