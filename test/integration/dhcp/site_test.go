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

// site is a VLAN with what is on it. Its network is 192.0.2.0/24 for every test: nothing
// leads from one to another.
type site struct{ bridge string }

var sites atomic.Int32

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	needRoot(t)
	return &site{bridge: fmt.Sprintf("vlan%d", sites.Add(1))}
}

// needRoot skips a test where coredhcp cannot run as nobody: the root of a namespace of users
// has no other user.
func needRoot(t *testing.T) {
	t.Helper()
	out, err := exec.Command("setpriv", "--reuid=65534", "--clear-groups", "true").CombinedOutput()
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s needs root, to run coredhcp as nobody: %v: %s", t.Name(), err, out)
	}
	t.Skipf("%s needs root, to run coredhcp as nobody: %v: %s", t.Name(), err, out)
}

// server is a coredhcp in a namespace as a pod's: net1 on the VLAN, eth0 elsewhere.
type server struct {
	*lab.Daemon
	*lab.Namespace

	dir    string // which coredhcp may write to
	http   string
	binary string
}

var uplinks atomic.Int32

// newServer starts a coredhcp with an address on the VLAN and these plugins.
func (s *site) newServer(t *testing.T, address string, plugins ...string) *server {
	t.Helper()
	n := lab.NewNamespace(t)
	up := uplinks.Add(1)
	here, there := fmt.Sprintf("10.88.%d.1", up), fmt.Sprintf("10.88.%d.2", up)
	err := errors.Join(
		lab.Cable(lab.End{Bridge: s.bridge}, lab.End{In: n, Device: "net1", Addresses: []string{address + "/24"}}),
		lab.Cable(lab.End{Addresses: []string{here + "/24"}}, lab.End{In: n, Device: "eth0", Addresses: []string{there + "/24"}}))
	if err != nil {
		t.Fatal(err)
	}
	n.Run(t, "ip", "route", "add", "default", "via", here)
	n.Run(t, "sh", "-c", "echo 67 > /proc/sys/net/ipv4/ip_unprivileged_port_start")

	srv := &server{Namespace: n, dir: lab.TempDir(t), http: there + ":9903", binary: network.Binary(t, "coredhcp")}
	if err := os.Chmod(srv.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	srv.configure(t, plugins...)
	srv.Daemon = lab.NewDaemon(t, "coredhcp", srv.command)
	return srv
}

// command starts coredhcp, after it was written down what it may do.
func (s *server) command() *exec.Cmd {
	return s.Command(context.Background(), append(unprivileged(), "sh", "-c", "grep Cap /proc/self/status; exec \"$0\" \"$@\"",
		s.binary, "--config", filepath.Join(s.dir, "config.yml"), "--http", s.http, "--log-level", "debug")...)
}

// unprivileged is the command that runs another as nobody, without a capability and no way to
// one.
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

// write writes a file that coredhcp may read.
func (s *server) write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// start starts the server and waits until it is ready.
func (s *server) start(t *testing.T) {
	t.Helper()
	s.Start(t)
	s.ready(t)
	if caps := s.Log.Lines("CapEff:"); len(caps) != 1 || strings.Fields(caps[0])[1] != strings.Repeat("0", 16) {
		t.Fatalf("coredhcp has capabilities: %q", caps)
	}
}

// kubeconfig copies the administrator's for coredhcp to read.
func (s *server) kubeconfig(t *testing.T, cp *lab.ControlPlane) string {
	t.Helper()
	data, err := os.ReadFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return s.write(t, "kubeconfig", string(data))
}

// machine is one of the clients on the VLAN.
type machine struct {
	*lab.Machine

	mac net.HardwareAddr
}

// newMachine plugs in a machine with a MAC address.
func (s *site) newMachine(t *testing.T, mac string) *machine {
	t.Helper()
	address, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{lab.NewMachine(t, s.bridge, mac), address}
}
