//go:build e2e

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

// TestDoctorOnTheNode breaks a deployed Infra in many ways, and expects doctor to report each fault first, and nothing after the
// repair.
func TestDoctorOnTheNode(t *testing.T) {
	s := newSite(t)
	s.serveClusterDNS(t, node.Node)
	s.setup(t, infra, "--cluster-dns", "patch")
	vlanServer(t, s.ca, "*.apps."+domain)
	s.boot(t, "worker-1", "02:00:00:00:50:71")
	s.boot(t, "worker-2", "02:00:00:00:50:72") // a single VM that is silent may be at fault itself
	s.testFaults(t, faults.OnNode)
}

// testFaults tries groups of faults.
func (s *site) testFaults(t *testing.T, groups func(*faults.NodeSite) []faults.Group) {
	t.Helper()
	c, err := client.New(s.cp.RESTConfig(), client.Options{})
	lab.Must(t, err)
	p := &faults.NodeSite{
		Site: &faults.Site{T: t, ControlPlane: s.cp, Client: c, Doctor: s.doctor, Timeout: 3 * time.Minute},
		Freeze: func(t *testing.T, pod, container string) func() {
			s.signal(t, pod, container, syscall.SIGSTOP)
			return func() { s.signal(t, pod, container, syscall.SIGCONT) }
		},
		Kill:        func(t *testing.T, pod, container string) { s.signal(t, pod, container, syscall.SIGKILL) },
		InNetworkOf: s.inNetworkOf, AddHost: addHost,
		OnNode: func(t *testing.T, line ...string) {
			lab.Must(t, node.Run(t.Context(), line...))
		},
		Unplug: func(t *testing.T) func() {
			lab.Must(t, node.Unplug(vlan))
			return func() {
				lab.Report(t, node.Plug(vlan))
			}
		},
	}
	t.Run("healthy", func(t *testing.T) { p.Healthy(t, "--probe") })
	for _, g := range groups(p) {
		t.Run(g.Name, func(t *testing.T) { p.Try(t, &g) })
	}
	t.Run("healthy after the faults", func(t *testing.T) { p.Healthy(t, "--probe") })
}

// doctor runs 'kubectl oooi doctor'.
func (s *site) doctor(t *testing.T, args ...string) lab.Result {
	t.Helper()
	return lab.Execute(t, 2*time.Minute, append([]string{s.binary, "--kubeconfig", s.cp.Kubeconfig(), "-n", "clusters", "doctor", "demo"}, args...)...)
}

// processes returns the process IDs of a container, or of a Pod's last container if container is "", by the
// cgroups of processes.
func (s *site) processes(t *testing.T, pod, container string) []int {
	t.Helper()
	id := ""
	for _, c := range getPod(t, s.cp, "clusters", pod).Status.ContainerStatuses {
		if c.Name == container || container == "" {
			id = strings.TrimPrefix(c.ContainerID, "containerd://")
		}
	}
	if id == "" {
		t.Fatalf("Pod %s has no running container %q", pod, container)
	}
	var list []int
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	lab.Must(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		if strings.Contains(string(text), id) {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			lab.Must(t, err)
			list = append(list, pid)
		}
	}
	if len(list) == 0 {
		t.Fatalf("container %s of Pod %s has no process", container, pod)
	}
	return list
}

// signal sends a signal to all processes of a container.
func (s *site) signal(t *testing.T, pod, container string, signal syscall.Signal) {
	t.Helper()
	for _, pid := range s.processes(t, pod, container) {
		lab.Must(t, syscall.Kill(pid, signal))
	}
}

// inNetworkOf runs a command in the network namespace of a Pod.
func (s *site) inNetworkOf(t *testing.T, pod string, line ...string) {
	t.Helper()
	pid := s.processes(t, pod, "")[0]
	args := append([]string{"--net=/proc/" + strconv.Itoa(pid) + "/ns/net"}, line...)
	if out, err := exec.CommandContext(t.Context(), "nsenter", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", line, err, out)
	}
}

// addHost connects a machine with an address to the VLAN. Unless it is silent, it sends ARP requests, as hosts do that use the
// network.
func addHost(t *testing.T, address string, silent bool) (disconnect func()) {
	t.Helper()
	m := lab.NewMachine(t, vlan, "02:00:00:00:50:e1")
	m.Run(t, "ip", "address", "add", address+"/24", "dev", "eth0")
	ctx, cancel := context.WithCancel(t.Context())
	client := m.Command(ctx, "curl", "--silent", "--connect-timeout", "1", "--retry", "10000", "--retry-delay", "1", "--retry-all-errors",
		"http://198.18.50.254") // no host has this address
	if !silent {
		lab.Must(t, client.Start())
	}
	return func() {
		cancel()
		_ = client.Wait() // killed, or not started
		m.Run(t, "ip", "link", "set", "eth0", "down")
	}
}
