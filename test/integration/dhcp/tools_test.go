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

// hook is the script that the clients run. It appends the client's environment to a file, and configures the
// interface's address as the clients' own scripts do. Clients use different variable names.
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
	lab.Must(t, os.WriteFile(m.file(name), []byte(text), 0o755))
	return m.file(name)
}

// script writes the hook and returns its path.
func (m *machine) script(t *testing.T) string {
	t.Helper()
	return m.write(t, "hook", strings.Replace(hook, "LOG", m.file("events"), 1))
}

// event is the environment of one run of the hook.
type event map[string]string

// events returns the events so far.
func (m *machine) events(t *testing.T) []event {
	t.Helper()
	data, err := os.ReadFile(m.file("events"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	blocks := strings.Split(string(data), "\n.\n")
	var list []event
	for _, block := range blocks[:len(blocks)-1] { // the last one may be written only partly
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

// awaitEvent waits for an event with one of these reasons after the first n events, and returns it.
func (m *machine) awaitEvent(t *testing.T, n int, reasons ...string) (e event) {
	t.Helper()
	lab.Poll(t, "an event "+strings.Join(reasons, " or "), func() bool {
		for _, e = range m.events(t)[n:] {
			if slices.Contains(reasons, e["reason"]) {
				return true
			}
		}
		return false
	})
	return e
}

// startClient starts a DHCP client that runs until it is killed or the test ends.
func (m *machine) startClient(t *testing.T, args ...string) *lab.Daemon {
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
request subnet-mask, broadcast-address, routers, domain-name, domain-name-servers, host-name, interface-mtu, domain-search, ntp-servers, classless-routes;
`

// dhclient returns the command line of ISC dhclient in the foreground.
func (m *machine) dhclient(t *testing.T, more ...string) []string {
	t.Helper()
	conf := m.write(t, "dhclient.conf", dhclientConf)
	args := []string{"dhclient", "-4", "-v", "-d", "-cf", conf, "-sf", m.script(t), "-lf", m.file("leases"), "-pf", m.file("pid")}
	return append(append(args, more...), "eth0")
}

// udhcpc returns the command line of BusyBox's udhcpc.
func (m *machine) udhcpc(t *testing.T, more ...string) []string {
	t.Helper()
	args := []string{"busybox", "udhcpc", "-f", "-i", "eth0", "-s", m.script(t), "-t", "10", "-T", "1", "-A", "1", "-O", "mtu", "-O", "staticroutes"}
	return append(args, more...)
}

// dhcpcd returns the command line of dhcpcd with private directories, because their paths are compiled in.
func (m *machine) dhcpcd(t *testing.T, more ...string) []string {
	t.Helper()
	conf := m.write(t, "dhcpcd.conf", "option domain_name_servers, domain_name, host_name, interface_mtu, ntp_servers, classless_static_routes\nnoipv4ll\n")
	private := "mount -t tmpfs none /run && mkdir -p /run/dhcpcd && mount -t tmpfs none /var/lib/dhcpcd; \"$@\" & wait" // no exec: when this shell ends, all processes of its PID namespace do
	args := []string{"unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", private, "dhcpcd", "dhcpcd", "-4", "-B", "-d", "--nodev", "-f", conf, "-c", m.script(t)}
	return append(append(args, more...), "eth0")
}

// address returns the IPv4 address of eth0, or "" if it has none.
func (m *machine) address(t *testing.T) string {
	t.Helper()
	return m.addressOf(t, "eth0")
}

func (m *machine) addressOf(t *testing.T, device string) string {
	t.Helper()
	fields := strings.Fields(m.Run(t, "ip", "-4", "-o", "address", "show", "dev", device, "scope", "global"))
	if len(fields) < 4 {
		return ""
	}
	ip, _, _ := strings.Cut(fields[3], "/")
	return ip
}
