//go:build e2e

package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
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

// during runs setup, and does something once it has said a text. It returns the code that setup
// ends with, and what it has said.
func (s *site) during(t *testing.T, infra, text string, do func(*os.Process), flags ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := s.setupCommand(ctx, t, infra, flags...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if do != nil && strings.Contains(lines.Text(), text) {
			do(cmd.Process)
			do = nil
		}
	}
	err = cmd.Wait()
	t.Logf("%s\n%s%v", cmd, &said, err)
	if do != nil {
		t.Errorf("setup has not said %q", text)
	}
	return cmd.ProcessState.ExitCode(), said.String()
}

func signal(t *testing.T, number syscall.Signal) func(*os.Process) {
	return func(p *os.Process) {
		time.Sleep(2 * time.Second) // for the old pod to go
		if err := p.Signal(number); err != nil {
			t.Error(err)
		}
	}
}

// containers are those of what serves the VLAN, by component.
func (s *site) containers(t *testing.T) map[string][]string {
	t.Helper()
	ids := map[string][]string{}
	for _, component := range []string{"dhcp", "dns", "proxy"} {
		for _, pod := range s.pods(t, component) {
			for _, c := range pod.Status.ContainerStatuses {
				ids[component] = append(ids[component], c.ContainerID)
			}
		}
	}
	return ids
}

// TestAChangeThatCannotWorkLeavesWhatWorks has machines ask all the time, while setup is told to do
// what cannot work, or is interrupted. After each change a plain setup restores everything.
func TestAChangeThatCannotWorkLeavesWhatWorks(t *testing.T) {
	s := newSite(t)
	vlanServer(t, s.ca, shop)
	s.setup(t, infra)
	v := s.visit(t)
	if err := node.TagImage(t.Context(), oooiImage, secondImage); err != nil {
		t.Fatal(err)
	}
	asks := map[string]string{"names": "dns", "connections": "proxy", "leases renewed": "dhcp", "addresses offered": "dhcp"}
	for _, c := range slices.Concat(wrongInput(s), wrongCluster(s), interrupted(s, v)) {
		if c.extra && !lab.Long() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			v.awaitService(t, "service before: "+c.name, time.Now())
			before, began := s.containers(t), time.Now()
			c.make(t)
			s.plain(t)
			v.awaitService(t, "service after: "+c.name, time.Now())
			for component, ids := range s.containers(t) {
				if !slices.Contains(c.tried, component) && !slices.Equal(ids, before[component]) {
					t.Errorf("the containers of %s were %s and are %s, and setup is not to touch it", component, before[component], ids)
				}
			}
			for _, p := range v.probes {
				// A loaded machine loses some seconds of questions. A pod that does not start loses more.
				if lost := p.outage(began); lost > 15*time.Second && !slices.Contains(c.tried, asks[p.name]) {
					t.Errorf("%s: no service for %s, and setup is not to touch it", p.name, lost)
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
	t.Logf("seconds without service:\n%s", v.table())
}
