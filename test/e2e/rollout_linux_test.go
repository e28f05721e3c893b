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

// failingSetup runs setup, which must exit with code 1, and returns its output.
func (s *site) failingSetup(t *testing.T, infra string, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := s.setupCommand(ctx, t, infra, flags...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	t.Logf("%s\n%s", cmd, &output)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("setup exited with %v, want code 1", err)
	}
	return output.String()
}

// setupCommand returns the command of setup with only the given flags.
func (s *site) setupCommand(ctx context.Context, t *testing.T, infra string, flags ...string) *exec.Cmd {
	t.Helper()
	file := filepath.Join(s.dir, "infra.yaml")
	if err := os.WriteFile(file, []byte(infra), 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(ctx, s.binary, append([]string{"--kubeconfig", s.cp.Kubeconfig(), "setup", "-f", file, "--timeout", "3m"}, flags...)...)
}

// setupWithoutFlags runs setup without image flags, which must succeed and change only what has failed.
func (s *site) setupWithoutFlags(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := s.setupCommand(ctx, t, infra)
	out, err := cmd.CombinedOutput()
	t.Logf("%s\n%s", cmd, out)
	if err != nil {
		t.Errorf("setup without flags: %v", err)
	}
	return string(out)
}

// runDuringSetup runs setup, and calls do once setup has printed a text. It returns setup's exit code and
// output.
func (s *site) runDuringSetup(t *testing.T, infra, text string, do func(*os.Process), flags ...string) (int, string) {
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
	var output strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		fmt.Fprintln(&output, lines.Text())
		if do != nil && strings.Contains(lines.Text(), text) {
			do(cmd.Process)
			do = nil
		}
	}
	err = cmd.Wait()
	t.Logf("%s\n%s%v", cmd, &output, err)
	if do != nil {
		t.Errorf("setup did not print %q", text)
	}
	return cmd.ProcessState.ExitCode(), output.String()
}

func signal(t *testing.T, number syscall.Signal) func(*os.Process) {
	return func(p *os.Process) {
		time.Sleep(2 * time.Second) // until the old pod has ended
		if err := p.Signal(number); err != nil {
			t.Error(err)
		}
	}
}

// containers returns the container IDs of the components on the VLAN, by component.
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

// TestFailedSetupKeepsService probes the services while setup applies changes that cannot succeed, or is
// interrupted. After each change a setup without flags must restore everything.
func TestFailedSetupKeepsService(t *testing.T) {
	s := newSite(t)
	vlanServer(t, s.ca, shop)
	s.setup(t, infra)
	v := s.monitor(t)
	if err := node.TagImage(t.Context(), oooiImage, secondImage); err != nil {
		t.Fatal(err)
	}
	componentOf := map[string]string{"names": "dns", "connections": "proxy", "leases renewed": "dhcp", "addresses offered": "dhcp"}
	for _, c := range slices.Concat(invalidInputs(s), clusterFaults(s), interruptions(s, v)) {
		if c.extra && !lab.Long() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			v.awaitService(t, "service before: "+c.name, time.Now())
			before, began := s.containers(t), time.Now()
			c.run(t)
			s.setupWithoutFlags(t)
			v.awaitService(t, "service after: "+c.name, time.Now())
			for component, ids := range s.containers(t) {
				if !slices.Contains(c.rolledOut, component) && !slices.Equal(ids, before[component]) {
					t.Errorf("containers of %s were %s and are %s, although setup must not restart it", component, before[component], ids)
				}
			}
			for _, p := range v.probes {
				// On a loaded host some seconds of requests fail. A pod that does not start loses more.
				if lost := p.outage(began); lost > 15*time.Second && !slices.Contains(c.rolledOut, componentOf[p.name]) {
					t.Errorf("%s: no service for %s, although setup must not restart it", p.name, lost)
				}
			}
			v.add(t, v.row(c.name, began))
		})
	}
	for _, p := range v.probes {
		for _, err := range p.wrongAnswers() {
			t.Error(err)
		}
	}
	t.Logf("seconds without service:\n%s", v.table())
}
