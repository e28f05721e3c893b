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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// A change is one that does not succeed, or not at once.
type change struct {
	name string
	make func(*testing.T)
	// tried are the components that setup tried; the containers of others stay.
	tried []string
	// extra: only in make test-long.
	extra bool
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
	const otherImage = "localhost/oooi:e2e-3"
	if err := node.TagImage(t.Context(), oooiImage, otherImage); err != nil {
		t.Fatal(err)
	}
	with := func(old, more string) string { return strings.Replace(infra, old, old+more, 1) }
	starved := with("serverIP: 198.18.50.6", ", resources: {limits: {memory: 8Mi}}") // DNS, which ends for want of memory
	refused := func(infra string, says []string, flags ...string) func(*testing.T) {
		return func(t *testing.T) {
			said := s.fails(t, infra, flags...)
			for _, want := range says {
				if !strings.Contains(said, want) {
					t.Errorf("setup does not say %q", want)
				}
			}
		}
	}
	const nothing = "nothing was applied"
	asks := map[string]string{"names": "dns", "connections": "proxy", "leases renewed": "dhcp", "addresses offered": "dhcp"}
	for _, c := range []change{
		{name: "no image", make: refused(infra, []string{"localhost/none:1", nothing}, "--image", "localhost/none:1")},
		{name: "no image of DNS", extra: true, make: refused(with("serverIP: 198.18.50.6", ", image: localhost/none:1"), []string{"localhost/none:1", nothing})},
		{name: "no image of control", extra: true, make: refused(strings.NewReplacer("serverIP: 198.18.50.5", "image: "+oooiImage+", serverIP: 198.18.50.5", "serverIP: 198.18.50.6",
			"image: "+oooiImage+", serverIP: 198.18.50.6", "serverIP: 198.18.50.7", "image: "+oooiImage+", serverIP: 198.18.50.7").Replace(infra),
			[]string{"checking Deployment oooi-system/oooi-control", "localhost/none:1", nothing}, "--image", "localhost/none:1")},
		{name: "no image of Envoy", make: refused(infra, []string{"localhost/none:1", nothing}, "--envoy-image", "localhost/none:1")},
		{name: "another program", extra: true, make: refused(with("rangeEnd: 198.18.50.159", ", image: "+toolsImage), []string{"coredhcp", nothing})},
		{name: "a network that cannot be attached", make: func(t *testing.T) {
			nad := func(config string) {
				apply(t, s.cp, "apiVersion: k8s.cni.cncf.io/v1\nkind: NetworkAttachmentDefinition\nmetadata: {name: vlan50, namespace: clusters}\nspec: {config: '%s'}\n", config)
			}
			nad(`{"cniVersion": "0.3.1", "name": "vlan50", "type": "macvlan", "master": "none"}`)
			refused(infra, []string{nothing})(t)
			nad(`{"cniVersion": "0.3.1", "name": "vlan50", "type": "bridge", "bridge": "vlan50"}`)
		}},
		{name: "a quota that is exceeded", extra: true, make: func(t *testing.T) {
			const quota = "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: small, namespace: clusters}\nspec: {hard: {pods: \"1\"}}\n"
			apply(t, s.cp, "%s", quota)
			await(t, "the quota", func() string {
				q, err := kube(t, s.cp).CoreV1().ResourceQuotas("clusters").Get(t.Context(), "small", metav1.GetOptions{})
				if err != nil || q.Status.Used.Pods().Value() < 3 {
					return fmt.Sprint(err, q)
				}
				return ""
			})
			refused(infra, []string{"ResourceQuota clusters/small", nothing}, "--image", otherImage)(t)
			if err := s.cp.DeleteYAML(t.Context(), []byte(quota)); err != nil {
				t.Fatal(err)
			}
		}},
		{name: "DNS that ends", make: refused(starved, []string{"dns is rolled back"}), tried: []string{"dns"}},
		{name: "Ctrl-C", tried: []string{"dns"}, make: func(t *testing.T) {
			if code, _ := s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGINT)); code != 130 {
				t.Errorf("setup ended with %d, want 130", code)
			}
			v.awaitService(t, "service after Ctrl-C", time.Now())
		}},
		{name: "setup killed", tried: []string{"dns"}, make: func(t *testing.T) {
			s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
		}},
		{name: "setup killed, and then told what cannot work", extra: true, tried: []string{"dns"}, make: func(t *testing.T) {
			s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
			refused(infra, []string{nothing, "dns, which a setup before has left unfinished, is rolled back"}, "--image", "localhost/none:1")(t)
			v.awaitService(t, "service after the refusal", time.Now())
		}},
		{name: "setup killed, of a version that notes nothing", extra: true, tried: []string{"dns"}, make: func(t *testing.T) {
			s.during(t, starved, "StatefulSet clusters/demo-dns configured", signal(t, syscall.SIGKILL))
			_, err := kube(t, s.cp).CoreV1().ConfigMaps("clusters").Patch(t.Context(), "demo-oooi-inventory", types.MergePatchType,
				[]byte(`{"data": {"rollout.yaml": null}}`), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}},
		{name: "API server killed", tried: []string{"dns", "proxy", "dhcp"}, make: func(t *testing.T) {
			code, said := s.during(t, infra, "StatefulSet clusters/demo-proxy configured", func(*os.Process) {
				if err := s.cp.KillAPIServer(); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Second)
				if err := s.cp.StartAPIServer(t.Context()); err != nil {
					t.Error(err)
				}
			}, "--image", otherImage)
			if code != 0 || strings.Contains(said, "https://192.0.2.1") {
				t.Errorf("setup ended with %d", code)
			}
		}},
	} {
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
