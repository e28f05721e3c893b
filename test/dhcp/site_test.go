package dhcp_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// site is a VLAN with what is on it. Its network is 192.0.2.0/24 for every test: nothing
// leads from one to another.
type site struct {
	lan   *namespace // the switch
	ports atomic.Int32
}

// sources are what these tests test, which they do not import.
var sources = sync.OnceValue(func() error { return lab.LookAt("api", "internal", "plugins", "coredhcpbuild") })

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	if err := sources(); err != nil {
		t.Fatal(err)
	}
	needRoot(t)
	s := &site{lan: newNamespace(t)}
	s.lan.run(t, "ip", "link", "add", "lan", "type", "bridge")
	s.lan.run(t, "ip", "link", "set", "lan", "up")
	return s
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

// plug connects an interface of a namespace to the switch.
func (s *site) plug(t *testing.T, n *namespace, name, mac string) {
	t.Helper()
	port := fmt.Sprintf("port%d", s.ports.Add(1))
	connect(t, s.lan, port, n, name)
	s.lan.run(t, "ip", "link", "set", port, "master", "lan")
	if mac != "" {
		n.run(t, "ip", "link", "set", name, "address", mac)
	}
}

// server is a coredhcp in a namespace as a pod's: net1 on the VLAN, eth0 elsewhere.
type server struct {
	*lab.Daemon
	*namespace

	dir  string // which coredhcp may write to
	http string
}

var uplinks atomic.Int32

// newServer starts a coredhcp with an address on the VLAN and these plugins.
func (s *site) newServer(t *testing.T, address string, plugins ...string) *server {
	t.Helper()
	n := newNamespace(t)
	s.plug(t, n, "net1", "")
	n.run(t, "ip", "address", "add", address+"/24", "dev", "net1")
	n.run(t, "sh", "-c", "echo 67 > /proc/sys/net/ipv4/ip_unprivileged_port_start")

	up := int(uplinks.Add(1))
	host := fmt.Sprintf("up%d", up)
	connect(t, nil, host, n, "eth0")
	here, there := fmt.Sprintf("10.88.%d.1", up), fmt.Sprintf("10.88.%d.2", up)
	if out, err := exec.Command("ip", "address", "add", here+"/24", "dev", host).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.run(t, "ip", "address", "add", there+"/24", "dev", "eth0")
	n.run(t, "ip", "route", "add", "default", "via", here)

	srv := &server{namespace: n, dir: lab.TempDir(t), http: there + ":9903"}
	if err := os.Chmod(srv.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	srv.configure(t, plugins...)
	srv.Daemon = lab.NewDaemon(t, "coredhcp", func() *exec.Cmd { return n.command(srv.commandLine()...) })
	return srv
}

// commandLine starts coredhcp, after it was written down what it may do.
func (s *server) commandLine() []string {
	return append(unprivileged(), "sh", "-c", "grep Cap /proc/self/status; exec \"$0\" \"$@\"",
		os.Getenv(binaryPath), "--config", filepath.Join(s.dir, "config.yml"), "--http", s.http, "--log-level", "debug")
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

// config returns the configuration.
func (s *server) config(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "config.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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

// machine is a client's namespace with an interface on the VLAN.
type machine struct {
	*namespace

	mac net.HardwareAddr
	dir string
}

// newMachine plugs in a machine with a MAC address.
func (s *site) newMachine(t *testing.T, mac string) *machine {
	t.Helper()
	address, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{namespace: newNamespace(t), mac: address, dir: lab.TempDir(t)}
	s.plug(t, m.namespace, "eth0", mac)
	return m
}
