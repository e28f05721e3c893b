package dhcp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// site is a VLAN. Each test has a separate one, with the network 192.0.2.0/24.
type site struct{ bridge string }

var sites atomic.Int32

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	needRoot(t)
	return &site{bridge: fmt.Sprintf("vlan%d", sites.Add(1))}
}

// needRoot skips a test, or fails it in CI, if coredhcp cannot run as an unprivileged user: root of a user
// namespace has no other users.
func needRoot(t *testing.T) {
	t.Helper()
	out, err := exec.Command("setpriv", "--reuid=65534", "--clear-groups", "true").CombinedOutput()
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s needs root to run coredhcp as an unprivileged user: %v: %s", t.Name(), err, out)
	}
	t.Skipf("%s needs root to run coredhcp as an unprivileged user: %v: %s", t.Name(), err, out)
}

// server is a coredhcp in a network namespace like a pod's: net1 is on the VLAN, eth0 leads to the API
// server.
type server struct {
	*lab.Daemon
	*lab.Namespace
	lab.Pages

	dir    string // writable for coredhcp
	binary string
}

var uplinks atomic.Int32

// newServer returns a coredhcp that is not started, with an address on the VLAN and plugins. In the plugins'
// arguments DIR stands for the server's folder.
func (s *site) newServer(t *testing.T, address string, plugins ...string) *server {
	t.Helper()
	n := lab.NewNamespace(t)
	up := uplinks.Add(1)
	hostAddress, podAddress := fmt.Sprintf("10.88.%d.1", up), fmt.Sprintf("10.88.%d.2", up)
	err := errors.Join(
		lab.Cable(lab.End{Bridge: s.bridge}, lab.End{In: n, Device: "net1", Addresses: []string{address + "/24"}}),
		lab.Cable(lab.End{Addresses: []string{hostAddress + "/24"}}, lab.End{In: n, Device: "eth0", Addresses: []string{podAddress + "/24"}}))
	lab.Must(t, err)
	n.Run(t, "ip", "route", "add", "default", "via", hostAddress)
	n.Run(t, "sh", "-c", "echo 67 > /proc/sys/net/ipv4/ip_unprivileged_port_start")

	srv := &server{Namespace: n, dir: lab.TempDir(t), Pages: lab.Pages(podAddress + ":9903"), binary: network.Binary(t, "coredhcp")}
	lab.Must(t, os.Chmod(srv.dir, 0o777))
	srv.configure(t, plugins...)
	srv.Daemon = lab.NewDaemon(t, "coredhcp", srv.command)
	return srv
}

// command returns the command of coredhcp, which first prints its capabilities.
func (s *server) command() *exec.Cmd {
	return s.Command(context.Background(), append(unprivileged(), "sh", "-c", "grep Cap /proc/self/status; exec \"$0\" \"$@\"",
		s.binary, "--config", filepath.Join(s.dir, "config.yml"), "--http", string(s.Pages), "--log-level", "debug")...)
}

// unprivileged returns a command prefix that runs a command as user 65534, without capabilities or a way to
// gain any.
func unprivileged() []string {
	return []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
		"--no-new-privs", "--pdeathsig=KILL"}
}

// configure writes the configuration.
func (s *server) configure(t *testing.T, plugins ...string) {
	t.Helper()
	text := "server4:\n  listen: [\"%net1\"]\n  plugins:\n"
	for _, p := range plugins {
		name, args, _ := strings.Cut(p, " ")
		text += fmt.Sprintf("  - %s: %q\n", name, strings.ReplaceAll(args, "DIR", s.dir))
	}
	s.write(t, "config.yml", text)
}

// write writes a file that coredhcp can read, and returns its path.
func (s *server) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	lab.Must(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// start starts the server, waits until it is ready and checks that it runs without capabilities.
func (s *server) start(t *testing.T) {
	t.Helper()
	s.Start(t)
	s.AwaitReady(t)
	if caps := s.Log.Lines("CapEff:"); len(caps) != 1 || strings.Fields(caps[0])[1] != strings.Repeat("0", 16) {
		t.Fatalf("coredhcp has capabilities: %q", caps)
	}
}

// kubeconfig copies the administrator's kubeconfig to the server's folder.
func (s *server) kubeconfig(t *testing.T, cp *lab.ControlPlane) string {
	t.Helper()
	data, err := os.ReadFile(cp.Kubeconfig())
	lab.Must(t, err)
	return s.write(t, "kubeconfig", string(data))
}

// machine is a host on the VLAN that runs a DHCP client.
type machine struct {
	*lab.Machine

	mac net.HardwareAddr
}

// newMachine creates a machine with a MAC address on the VLAN.
func (s *site) newMachine(t *testing.T, mac string) *machine {
	t.Helper()
	address, err := net.ParseMAC(mac)
	lab.Must(t, err)
	return &machine{lab.NewMachine(t, s.bridge, mac), address}
}
