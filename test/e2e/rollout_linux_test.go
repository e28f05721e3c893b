//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fails runs setup, which is to fail, and returns what it says.
func (s *site) fails(t *testing.T, infra string, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := s.setupCommand(ctx, t, infra, flags...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	t.Logf("%s\n%s", cmd, &said)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("setup ended with %v, want code 1", err)
	}
	return said.String()
}

// setupCommand is setup of an Infra with only the flags that are given.
func (s *site) setupCommand(ctx context.Context, t *testing.T, infra string, flags ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(s.dir, "infra.yaml")
	if err := os.WriteFile(file, []byte(infra), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(ctx, s.binary, append([]string{"--kubeconfig", s.cp.Kubeconfig(), "setup", "-f", file, "--timeout", "3m"}, flags...)...)
}

// plain runs setup without any flag about images, which is to change nothing but what failed.
func (s *site) plain(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := s.setupCommand(ctx, t, infra)
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", cmd, out)
	if err != nil {
		t.Errorf("a plain setup: %v", err)
	}
	return string(out)
}

// A change is one that cannot work.
type change struct {
	name  string
	infra string   // what is set up, with
	flags []string // these flags
	says  []string
	// tried is the probe of the component that was tried and rolled back; empty where nothing
	// may be noticed at all.
	tried string
}

// TestAChangeThatCannotWorkLeavesWhatWorks has machines ask all the time, while setup is told to do
// what cannot work.
func TestAChangeThatCannotWorkLeavesWhatWorks(t *testing.T) {
	s := newSite(t)
	vlanServer(t, s.ca, shop)
	s.setup(t, infra)
	v := s.visit(t)
	with := func(old, more string) string { return strings.Replace(infra, old, old+more, 1) }
	for _, c := range []change{
		{name: "no image", flags: []string{"--image", "localhost/none:1"}, says: []string{"localhost/none:1", "control is rolled back; unchanged: proxy, dns, dhcp"}},
		{name: "no image of DNS", infra: with("serverIP: 198.18.50.6", ", image: localhost/none:1"), says: []string{"localhost/none:1", "dns is rolled back"}, tried: "names"},
		{name: "no image of Envoy", flags: []string{"--envoy-image", "localhost/none:1"}, says: []string{"localhost/none:1", "proxy is rolled back"}, tried: "connections"},
		{name: "another program", infra: with("rangeEnd: 198.18.50.159", ", image: "+toolsImage), says: []string{"/coredhcp", "dhcp is rolled back"}, tried: "leases renewed addresses offered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v.awaitService(t, "service before: "+c.name, time.Now())
			began := time.Now()
			if c.infra == "" {
				c.infra = infra
			}
			said := s.fails(t, c.infra, c.flags...)
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					t.Errorf("setup does not say %q", want)
				}
			}
			v.awaitService(t, "service after: "+c.name, time.Now())
			if said := s.plain(t); strings.Contains(said, "Pod ") {
				t.Errorf("a plain setup replaces pods")
			}
			for _, p := range v.probes {
				lost := p.outage(began)
				if lost > 0 && !strings.Contains(c.tried, p.name) {
					t.Errorf("%s: no service for %s, and setup did not try that component", p.name, lost)
				}
			}
			v.add(t, v.row(c.name, began))
		})
	}
	for _, p := range v.probes {
		for _, err := range p.wrong() {
			t.Error(err)
		}
	}
	t.Log(fmt.Sprintf("seconds without service:\n%s", v.table()))
}
