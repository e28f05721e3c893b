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

// loopback is the address on which all servers listen.
const loopback = "127.0.0.1"

// A server is a running CoreDNS.
type server struct {
	*measure.Process

	name string
	port int
}

// start starts CoreDNS with one server block, on the given CPU, or on all if cpu is nil. It returns after a query of
// first for q got the right answer.
func (b *bench) start(ctx context.Context, name string, cpu *int, block string, first client, q question) (*server, error) {
	ports, err := lab.ReservePorts(ctx, loopback, 1)
	if err != nil {
		return nil, err
	}
	defer ports.Release() // CoreDNS listens when start returns
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

// memory returns the resident memory of the process in bytes.
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
