package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// A Machine stands for a virtual machine: a network namespace with an interface, eth0, on a
// VLAN. It ends with the test.
type Machine struct {
	dir      string
	launcher *launcher
	keeper   *process // of the namespace
}

var machines atomic.Int32 // how many this process has made

// NewMachine plugs a machine with a MAC address into a bridge of the test's network, which
// is made if it is not there. It is for tests in a Network. Its eth0 has no address yet.
func NewMachine(tb testing.TB, bridge, mac string) *Machine {
	tb.Helper()
	m := &Machine{dir: TempDir(tb), launcher: newLauncher()}
	tb.Cleanup(m.launcher.close)
	if !insideNetworkNow() {
		tb.Fatal("a machine needs a Network around it")
	}
	keeper := exec.Command("sleep", "infinity") //nolint:noctx // the end of the test ends it
	keeper.SysProcAttr = dieWithParent()
	keeper.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET
	m.keeper = m.start(tb, keeper)
	if _, err := makeBridge(bridge); err != nil {
		tb.Fatal(err)
	}
	port := fmt.Sprintf("%s-m%d", bridge, machines.Add(1))
	if err := ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", m.pid()); err != nil {
		tb.Fatal(err)
	}
	if err := ip("link", "set", port, "master", bridge, "up"); err != nil {
		tb.Fatal(err)
	}
	m.Run(tb, "ip", "link", "set", "lo", "up")
	m.Run(tb, "ip", "link", "set", "eth0", "up")
	return m
}

func (m *Machine) pid() string { return strconv.Itoa(m.keeper.cmd.Process.Pid) }

// start starts a process that ends with the test.
func (m *Machine) start(tb testing.TB, cmd *exec.Cmd) *process {
	tb.Helper()
	p, err := m.launcher.start(cmd, filepath.Join(m.dir, filepath.Base(cmd.Path)+".log"))
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

// Command makes a command on the machine.
func (m *Machine) Command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"--target", m.pid(), "--net", "--"}
	return exec.CommandContext(ctx, "nsenter", slices.Concat(enter, args)...)
}

// Run runs a command on the machine to its end, and returns what it prints.
func (m *Machine) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	cmd := m.Command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%q on a machine: %v\n%s%s", args, err, &stdout, &stderr)
	}
	return stdout.String()
}

// dhclientHook gives the interface its address, and writes down what else there is. The script
// that comes with the client would write the machine's /etc/resolv.conf.
const dhclientHook = `#!/bin/sh
case $reason in
BOUND|RENEW|REBIND|REBOOT)
	ip address replace "$new_ip_address/$new_subnet_mask" dev eth0
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
	copied, hook := filepath.Join(m.dir, "dhclient"), filepath.Join(m.dir, "hook")
	if err := errors.Join(install(client, copied), os.WriteFile(hook, []byte(dhclientHook), 0o700)); err != nil {
		tb.Fatal(err)
	}
	args := []string{copied, "-4", "-v", "-d", "-sf", hook, "-cf", "/dev/null", "-lf", hook + ".leases", "-pf", hook + ".pid"}
	cmd := m.Command(context.Background(), slices.Concat(args, flags, []string{"eth0"})...)
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
