package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// A Machine simulates a VM on a VLAN: it is a network namespace with one interface. The end of the test
// removes it.
type Machine struct {
	*Namespace

	// Device is the name of the interface.
	Device string
	// Dir is a directory for files of the programs that run on the machine.
	Dir string

	launcher *launcher
}

// NewMachine creates a machine and attaches its interface eth0, with a MAC address and without an IP address,
// to a bridge of the test's network. It creates the bridge if it does not exist. The test must run in a
// Network.
func NewMachine(tb testing.TB, bridge, mac string) *Machine {
	tb.Helper()
	if !insideNetworkNow() {
		tb.Fatal("NewMachine must be called in a Network")
	}
	m := MachineIn(tb, NewNamespace(tb), "eth0")
	Must(tb, Cable(End{Bridge: bridge}, End{In: m.Namespace, Device: m.Device, MAC: mac}))
	return m
}

// MachineIn returns a machine in an existing namespace. The caller connects the interface.
func MachineIn(tb testing.TB, n *Namespace, device string) *Machine {
	tb.Helper()
	m := &Machine{Namespace: n, Device: device, Dir: TempDir(tb), launcher: newLauncher()}
	tb.Cleanup(m.launcher.close)
	return m
}

// ListenDHCP opens a UDP port of the machine until the test ends: 68 for a DHCP client, 67 for a relay agent.
func (m *Machine) ListenDHCP(tb testing.TB, port int) (conn *net.UDPConn) {
	tb.Helper()
	Must(tb, m.Do(func() error {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), m.Device) })
			return errors.Join(control, err)
		}}
		socket, err := config.ListenPacket(tb.Context(), "udp4", fmt.Sprintf(":%d", port))
		conn, _ = socket.(*net.UDPConn) // the type for this network
		return err
	}))
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// start starts a process that is killed when the test ends.
func (m *Machine) start(tb testing.TB, cmd *exec.Cmd) *process {
	tb.Helper()
	p, err := m.launcher.start(cmd, filepath.Join(m.Dir, filepath.Base(cmd.Path)+".log"))
	Must(tb, err)
	tb.Cleanup(func() {
		Report(tb, p.kill())
	})
	return p
}

// dhclientHook configures the interface with the leased address, and writes all options to a file. The script
// that the dhclient package installs would overwrite the host's /etc/resolv.conf.
const dhclientHook = `#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
	ip address replace "$new_ip_address/$new_subnet_mask" dev "$interface"
	env | grep ^new_ >"$0.new" && mv "$0.new" "$0.lease" ;;
esac
`

// FindDHClient returns the path of ISC dhclient, which is often not in PATH.
func FindDHClient() (string, error) {
	path, err := exec.LookPath("dhclient")
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/dhclient")
	}
	return path, err
}

// A DHClient is a dhclient that runs on a machine.
type DHClient struct {
	process *process
	lease   string // path of the file with the lease
}

// StartDHCP starts ISC dhclient on the machine, with lines of its configuration. It sends a request every second, and continues to
// renew its lease.
func (m *Machine) StartDHCP(tb testing.TB, configuration string, flags ...string) *DHClient {
	tb.Helper()
	client, err := FindDHClient()
	Must(tb, err)
	// Run a copy, because AppArmor allows the installed one to write only below /var and /run.
	copied, hook := filepath.Join(m.Dir, "dhclient"), filepath.Join(m.Dir, "hook")
	Must(tb, errors.Join(install(client, copied), os.WriteFile(hook, []byte(dhclientHook), 0o700)))
	conf := WriteFile(tb, "initial-interval 1;\nbackoff-cutoff 1;\n"+configuration, hook+".conf")
	args := []string{copied, "-4", "-v", "-d", "-sf", hook, "-cf", conf, "-lf", hook + ".leases", "-pf", hook + ".pid"}
	return &DHClient{m.start(tb, m.Command(context.Background(), slices.Concat(args, flags, []string{m.Device})...)), hook + ".lease"}
}

// Log returns what the client has printed.
func (c *DHClient) Log(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(c.process.logFile)
	Must(tb, err)
	return string(text)
}

// Lease waits for a lease, and returns it by dhclient's variable names, such as ip_address and domain_name_servers.
func (c *DHClient) Lease(tb testing.TB) map[string]string {
	tb.Helper()
	lease := map[string]string{}
	Must(tb, await(tb.Context(), "a lease", func() error { return firstFailure([]*process{c.process}) }, c.process.logTail, func(context.Context) error {
		content, err := os.ReadFile(c.lease)
		for line := range strings.Lines(string(content)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			lease[strings.TrimPrefix(name, "new_")] = value
		}
		return err
	}))
	return lease
}

// udhcpcHook configures the interface and the default route, and prints the lease with dhclient's variable names.
const udhcpcHook = `#!/bin/sh
[ "$1" = bound ] || exit 0
ip address add "$ip/$mask" dev "$interface"
ip route add default via "$router"
echo "ip_address=$ip subnet_mask=$subnet routers=$router domain_name_servers=$dns host_name=$hostname"
`

// UDHCPC requests a lease with BusyBox's udhcpc, which then ends, and returns it as DHClient.Lease.
func (m *Machine) UDHCPC(tb testing.TB) map[string]string {
	tb.Helper()
	hook := filepath.Join(m.Dir, "udhcpc-hook")
	Must(tb, os.WriteFile(hook, []byte(udhcpcHook), 0o700))
	lease := map[string]string{}
	out := m.Run(tb, "busybox", "udhcpc", "-i", m.Device, "-n", "-q", "-f", "-t", "30", "-T", "1", "-O", "hostname", "-s", hook)
	for word := range strings.FieldsSeq(out) {
		name, value, _ := strings.Cut(word, "=")
		lease[name] = value
	}
	return lease
}

// DHCP starts ISC dhclient on the machine, waits for a lease, and returns it as DHClient.Lease.
func (m *Machine) DHCP(tb testing.TB) map[string]string {
	tb.Helper()
	return m.StartDHCP(tb, "").Lease(tb)
}
