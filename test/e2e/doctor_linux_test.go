//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/faults"
	"github.com/densityops/oooi/test/lab"
)

// TestDoctorOnTheNode injects faults into a deployed Infra. Doctor must find the cause of each one, and
// nothing after the repair.
func TestDoctorOnTheNode(t *testing.T) {
	s := newSite(t)
	s.serveClusterDNS(t, node.Node)
	s.setup(t, infra, "--cluster-dns", "patch")
	vlanServer(t, s.ca, "*.apps."+domain)
	vm := s.boot(t, "worker-1", "02:00:00:00:50:71")
	s.boot(t, "worker-2", "02:00:00:00:50:72") // a single VM that is silent may be at fault itself
	s.testFaults(t, vm.Machine, false, faults.OnNode())
}

// TestDoctorOnTwoNodes is TestDoctorOnTheNode for faults of the proxy's floating address.
func TestDoctorOnTwoNodes(t *testing.T) {
	c := newTwoNodes(t)
	c.serveClusterDNS(t, c.nodes[0])
	c.setup(t, replicatedInfra, "--cluster-dns", "patch")
	vlanServer(t, c.ca, "*.apps."+domain)
	vm := c.boot(t, "worker-1", "02:00:00:00:50:71")
	c.testFaults(t, vm.Machine, true, faults.OnFloatingAddress())
}

// testFaults injects one fault after the other, and checks that doctor finds it. The machine is a VM.
func (s *site) testFaults(t *testing.T, machine *lab.Machine, floats bool, all []faults.Fault) {
	t.Helper()
	c, err := client.New(s.cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &faults.Site{
		T: t, ControlPlane: s.cp, Client: c, Namespace: "clusters", VLAN: "vlan50", VMNetwork: "clusters-demo/vlan50", Net: "198.18.50",
		Bundles: t.TempDir(), Timeout: 3 * time.Minute,
		FloatingAddress: floats, Doctor: s.doctor, Node: &faults.NodeSite{
			Freeze: func(t *testing.T, pod, container string) func() {
				s.signal(t, pod, container, syscall.SIGSTOP)
				return func() { s.signal(t, pod, container, syscall.SIGCONT) }
			},
			Kill:        func(t *testing.T, pod, container string) { s.signal(t, pod, container, syscall.SIGKILL) },
			InNetworkOf: s.inNetworkOf, OnNode: func(t *testing.T, line ...string) {
				if err := node.Run(t.Context(), line...); err != nil {
					t.Fatal(err)
				}
			},
			Unplug: func(t *testing.T) func() {
				if err := node.Unplug(vlan); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := node.Plug(vlan); err != nil {
						t.Error(err)
					}
				}
			},
			TLSServer: s.tlsServer, Claim: claimAddress,
			OtherDHCP:      func(t *testing.T) func() { return lab.OtherDHCP(t, vlan, "198.18.50") },
			AddHost:        addHost,
			RequestAddress: func(t *testing.T) { lab.RequestAddress(t, machine) },
		},
	}
	t.Run("nothing is wrong", func(t *testing.T) { p.Healthy(t) })
	for _, f := range lab.Sample(all, 8) {
		t.Run(f.Name, func(t *testing.T) { p.Try(t, &f) })
	}
	t.Run("nothing is wrong after the faults", func(t *testing.T) { p.Healthy(t) })
}

// claimAddress sends one ARP announcement on the VLAN, with the bridge's MAC address.
func claimAddress(t *testing.T, address string) {
	t.Helper()
	i, err := net.InterfaceByName(vlan)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packet.Listen(i, packet.Datagram, unix.ETH_P_ARP, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddr(address)
	_, err = conn.WriteTo(arpFrame(i.HardwareAddr, at, at), ethernetBroadcast)
	if err := errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
}

// doctor runs 'kubectl oooi doctor'.
func (s *site) doctor(t *testing.T, args ...string) faults.Output {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.binary, append([]string{"--kubeconfig", s.cp.Kubeconfig(), "-n", "clusters", "doctor", "demo"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", cmd, err)
	}
	return faults.Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
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
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		if strings.Contains(string(text), id) {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
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
		if err := syscall.Kill(pid, signal); err != nil {
			t.Fatal(err)
		}
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

// tlsServer starts a server that only does TLS handshakes.
func (s *site) tlsServer(t *testing.T, address string, expired bool, names ...string) (stop func()) {
	t.Helper()
	issue := s.ca.Issue
	if expired {
		issue = s.ca.IssueExpired
	}
	certificate, err := tls.X509KeyPair(issue(t, names...))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() { handshake(conn) })
		}
	})
	return func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
		open.Wait()
	}
}

// handshake does a TLS handshake, and closes the connection when the client does.
func handshake(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	if conn.SetDeadline(time.Now().Add(5*time.Second)) == nil {
		_, _ = conn.Read(make([]byte, 1))
	}
}

// addHost connects a machine with an address to the VLAN, which announces it once unless it is silent.
func addHost(t *testing.T, address string, silent bool) (disconnect func()) {
	t.Helper()
	m := lab.NewMachine(t, vlan, "02:00:00:00:50:e1")
	m.Run(t, "ip", "address", "add", address+"/24", "dev", "eth0")
	if !silent {
		m.Run(t, "sh", "-ec", "echo 1 >/proc/sys/net/ipv4/conf/eth0/arp_notify; ip link set eth0 down; ip link set eth0 up")
	}
	return func() { m.Run(t, "ip", "link", "set", "eth0", "down") }
}
