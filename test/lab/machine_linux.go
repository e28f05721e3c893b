package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A Machine stands for a virtual machine: a network namespace with an interface on a VLAN. It ends
// with the test.
type Machine struct {
	*Namespace

	// Device is the interface.
	Device string
	// Dir is a folder for the files of its programs.
	Dir string

	launcher *launcher
}

// NewMachine plugs a machine with a MAC address into a bridge of the test's network, which
// is made if it is not there. It is for tests in a Network. Its eth0 has no address yet.
func NewMachine(tb testing.TB, bridge, mac string) *Machine {
	tb.Helper()
	if !insideNetworkNow() {
		tb.Fatal("a machine needs a Network around it")
	}
	m := MachineIn(tb, NewNamespace(tb), "eth0")
	if err := Cable(End{Bridge: bridge}, End{In: m.Namespace, Device: m.Device, MAC: mac}); err != nil {
		tb.Fatal(err)
	}
	return m
}

// MachineIn is a machine in a namespace, with an interface that the caller connects.
func MachineIn(tb testing.TB, n *Namespace, device string) *Machine {
	tb.Helper()
	m := &Machine{Namespace: n, Device: device, Dir: TempDir(tb), launcher: newLauncher()}
	tb.Cleanup(m.launcher.close)
	return m
}

// start starts a process that ends with the test.
func (m *Machine) start(tb testing.TB, cmd *exec.Cmd) *process {
	tb.Helper()
	p, err := m.launcher.start(cmd, filepath.Join(m.Dir, filepath.Base(cmd.Path)+".log"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.kill(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// dhclientHook gives the interface its address, and writes down what else there is. The script
// that comes with the client would write the machine's /etc/resolv.conf.
const dhclientHook = `#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
	ip address replace "$new_ip_address/$new_subnet_mask" dev "$interface"
	env | grep ^new_ >"$0.new" && mv "$0.new" "$0.lease" ;;
esac
`

// DHCP starts ISC's client on the machine and waits for its lease, which it returns: by the
// client's words, such as ip_address and domain_name_servers. The client goes on to renew it.
func (m *Machine) DHCP(tb testing.TB, flags ...string) map[string]string {
	tb.Helper()
	client, err := exec.LookPath("dhclient")
	if err != nil {
		client = "/usr/sbin/dhclient" // which not everybody has in PATH
	}
	// A copy, since AppArmor has the installed one write below /var and /run alone.
	copied, hook := filepath.Join(m.Dir, "dhclient"), filepath.Join(m.Dir, "hook")
	if err := errors.Join(install(client, copied), os.WriteFile(hook, []byte(dhclientHook), 0o700)); err != nil {
		tb.Fatal(err)
	}
	args := []string{copied, "-4", "-v", "-d", "-sf", hook, "-cf", "/dev/null", "-lf", hook + ".leases", "-pf", hook + ".pid"}
	cmd := m.Command(context.Background(), slices.Concat(args, flags, []string{m.Device})...)
	p := m.start(tb, cmd)
	var lease map[string]string
	err = await(tb.Context(), "a lease", func() error { return firstDead([]*process{p}) }, p.logTail, func(context.Context) error {
		content, err := os.ReadFile(hook + ".lease")
		lease = map[string]string{}
		for line := range strings.Lines(string(content)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			lease[strings.TrimPrefix(name, "new_")] = value
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return lease
}
