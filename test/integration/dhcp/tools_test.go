package dhcp_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// hook is the script that the clients run: it writes down what they were told, and gives the
// interface its address as their own scripts do. They call their variables differently.
const hook = `#!/bin/sh
reason=${reason:-$1}
ip=${new_ip_address:-$ip}
mask=${new_subnet_mask:-${subnet:-24}}
case $reason in
BOUND|RENEW|REBIND|REBOOT|bound|renew)
	/sbin/ip address flush dev eth0
	/sbin/ip address add "$ip/$mask" dev eth0 ;;
EXPIRE|FAIL|RELEASE|STOP|deconfig|nak)
	/sbin/ip address flush dev eth0 ;;
esac
{ echo "reason=$reason"; env; echo .; } >> LOG
exit 0
`

func (m *machine) file(name string) string { return filepath.Join(m.Dir, name) }

func (m *machine) write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(m.file(name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return m.file(name)
}

// script writes the hook and returns its path.
func (m *machine) script(t *testing.T) string {
	t.Helper()
	return m.write(t, "hook", strings.Replace(hook, "LOG", m.file("events"), 1))
}

// event is what a client told the hook.
type event map[string]string

// events returns what the clients told the hook so far.
func (m *machine) events(t *testing.T) []event {
	t.Helper()
	data, err := os.ReadFile(m.file("events"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	blocks := strings.Split(string(data), "\n.\n")
	var list []event
	for _, block := range blocks[:len(blocks)-1] { // the last may be half written
		e := event{}
		for line := range strings.SplitSeq(block, "\n") {
			if key, value, ok := strings.Cut(line, "="); ok && e[key] == "" {
				e[key] = value
			}
		}
		list = append(list, e)
	}
	return list
}

// told waits until a client tells the hook something for one of these reasons, after the
// events that there were before, and returns what.
func (m *machine) told(t *testing.T, after int, reasons ...string) (e event) {
	t.Helper()
	lab.Poll(t, "the client to say "+strings.Join(reasons, " or "), func() bool {
		for _, e = range m.events(t)[after:] {
			if slices.Contains(reasons, e["reason"]) {
				return true
			}
		}
		return false
	})
	return e
}

// client starts a DHCP client, which runs until it is killed, or the test ends.
func (m *machine) client(t *testing.T, args ...string) *lab.Daemon {
	t.Helper()
	c := lab.NewDaemon(t, args[0], func() *exec.Cmd { return m.Command(context.Background(), args...) })
	c.Start(t)
	return c
}

const dhclientConf = `
option classless-routes code 121 = array of unsigned integer 8;
timeout 30;
retry 1;
initial-interval 1;
backoff-cutoff 2;
reboot 5;
request subnet-mask, broadcast-address, routers, domain-name, domain-name-servers, host-name, interface-mtu, domain-search, classless-routes;
`

// dhclient is the command line of ISC's client, in the foreground.
func (m *machine) dhclient(t *testing.T, more ...string) []string {
	t.Helper()
	conf := m.write(t, "dhclient.conf", dhclientConf)
	args := []string{"dhclient", "-4", "-v", "-d", "-cf", conf, "-sf", m.script(t), "-lf", m.file("leases"), "-pf", m.file("pid")}
	return append(append(args, more...), "eth0")
}

// udhcpc is the command line of BusyBox's client.
func (m *machine) udhcpc(t *testing.T, more ...string) []string {
	t.Helper()
	args := []string{"busybox", "udhcpc", "-f", "-i", "eth0", "-s", m.script(t), "-t", "10", "-T", "1", "-A", "1", "-O", "mtu", "-O", "staticroutes"}
	return append(args, more...)
}

// dhcpcd is the command line of dhcpcd, whose folders are fixed: it gets some of its own.
func (m *machine) dhcpcd(t *testing.T, more ...string) []string {
	t.Helper()
	conf := m.write(t, "dhcpcd.conf", "option domain_name_servers, domain_name, host_name, interface_mtu, classless_static_routes\nnoipv4ll\n")
	private := "mount -t tmpfs none /run && mkdir -p /run/dhcpcd && mount -t tmpfs none /var/lib/dhcpcd; \"$@\" & wait" // not exec: with this shell all end
	args := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", private, "dhcpcd", "dhcpcd", "-4", "-B", "-d", "--nodev", "-f", conf, "-c", m.script(t)}
	return append(append(args, more...), "eth0")
}

// address is the interface's; empty where it has none.
func (m *machine) address(t *testing.T) string {
	t.Helper()
	fields := strings.Fields(m.Run(t, "ip", "-4", "-o", "address", "show", "dev", "eth0", "scope", "global"))
	if len(fields) < 4 {
		return ""
	}
	ip, _, _ := strings.Cut(fields[3], "/")
	return ip
}
