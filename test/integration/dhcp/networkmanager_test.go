package dhcp_test

import (
	"os"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

const networkManager = "/usr/sbin/NetworkManager"

// networkManagerScript starts NetworkManager, the DHCP client of RHCOS, with a separate D-Bus, /run and host
// name. With a read-only /sys it does not wait for udev. As on RHCOS it uses its internal DHCP client.
const networkManagerScript = `#!/bin/sh
set -e
mount -t tmpfs none /run
mount -t sysfs -o ro none /sys
mkdir -p /run/dbus /run/nm DIR/nm
mount --bind DIR/nm /var/lib/NetworkManager
mount --bind /dev/null /etc/hostname
hostname localhost
cat > /run/bus.conf <<X
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow own="*"/><allow send_destination="*"/><allow receive_sender="*"/></policy>
</busconfig>
X
cat > /run/nm.conf <<X
[main]
plugins=keyfile
auth-polkit=false
dhcp=internal
rc-manager=unmanaged
[keyfile]
path=/run/nm
[logging]
domains=ALL,DHCP4:DEBUG
X
cat > /run/nm/eth0.nmconnection <<X
[connection]
id=eth0
type=ethernet
interface-name=eth0
[ipv6]
method=disabled
X
sed s/eth0/eth1/ /run/nm/eth0.nmconnection > /run/nm/eth1.nmconnection # of machines with two interfaces
chmod 600 /run/nm/*.nmconnection
setpriv --pdeathsig KILL dbus-daemon --config-file /run/bus.conf --nofork --nopidfile &
while ! test -S /run/dbus/system_bus_socket; do sleep 0.05; done
echo $$ > DIR/nm.pid.new
mv DIR/nm.pid.new DIR/nm.pid
exec ` + networkManager + ` --debug --config /run/nm.conf --config-dir /run/none
`

// networkManager starts NetworkManager, waits for a lease, and returns the lease's options.
func (m *machine) networkManager(t *testing.T) (client *lab.Daemon, lease event) {
	t.Helper()
	lab.Must(t, os.RemoveAll(m.file("nm.pid")))
	client = m.startClient(t, "unshare", "--mount", "--uts", m.write(t, "networkmanager", strings.ReplaceAll(networkManagerScript, "DIR", m.Dir)))
	lab.Poll(t, "NetworkManager to start", func() bool {
		_, err := os.Stat(m.file("nm.pid"))
		return err == nil
	})
	lab.Poll(t, "NetworkManager to be connected", func() bool {
		return strings.HasPrefix(m.inNetworkManagersMounts(t, "nmcli -g GENERAL.STATE device show eth0 || true"), "100 ")
	})
	lease = event{}
	for line := range strings.Lines(m.inNetworkManagersMounts(t, "nmcli -f DHCP4 device show eth0")) {
		_, option, _ := strings.Cut(line, ":")
		key, value, _ := strings.Cut(option, " = ")
		lease[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return client, lease
}

// inNetworkManagersMounts runs a shell command in NetworkManager's mount and UTS namespaces, and returns its
// output.
func (m *machine) inNetworkManagersMounts(t *testing.T, command string) string {
	t.Helper()
	pid, err := os.ReadFile(m.file("nm.pid"))
	lab.Must(t, err)
	return m.Run(t, "nsenter", "--target="+strings.TrimSpace(string(pid)), "--mount", "--uts", "sh", "-c", command)
}

// TestNetworkManagerLifecycle boots the DHCP client of RHCOS, waits for a renewal and boots it again, with
// and without the leases that it has stored.
func TestNetworkManagerLifecycle(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	plugins := c.plugins("192.0.2.2")
	plugins[len(plugins)-1] += " ntp=192.0.2.7"
	srv := c.serveAt(t, s, "192.0.2.2", plugins...)
	c.startVM(t, srv, "worker", mac1)
	m := s.newMachine(t, mac1)
	client, e := m.networkManager(t)
	for key, want := range map[string]string{
		"subnet_mask": "255.255.255.0", "routers": "192.0.2.1", "domain_name_servers": "192.0.2.53", "domain_name": "demo.example.com",
		"host_name": "worker", "interface_mtu": "1400", "ntp_servers": "192.0.2.7", "dhcp_server_identifier": "192.0.2.2",
		"rfc3442_classless_static_routes": "10.0.0.0/8 192.0.2.9 0.0.0.0/0 192.0.2.1",
	} {
		if e[key] != want {
			t.Errorf("%s is %q, want %q in %v", key, e[key], want, e)
		}
	}
	address := e["ip_address"]
	if got := m.address(t); got != address || !strings.HasPrefix(address, "192.0.2.1") {
		t.Errorf("the interface has address %q, the lease %q", got, address)
	}
	for command, want := range map[string]string{
		"hostname":                            "worker\n",
		"cat /sys/class/net/eth0/mtu":         "1400\n",
		"ip route show 10.0.0.0/8":            "via 192.0.2.9 ",
		"ip route show default":               "via 192.0.2.1 ",
		"cat /run/NetworkManager/resolv.conf": "search demo.example.com\nnameserver 192.0.2.53\n",
	} {
		lab.Await(t, "NetworkManager to apply the lease", func() string {
			if got := m.inNetworkManagersMounts(t, command); !strings.Contains(got, want) {
				return command + ": " + got
			}
			return ""
		})
	}
	lab.Poll(t, "the lease to be renewed", func() bool { return len(srv.Log.Lines("request=REQUEST reply=ACK", "to="+address+":68")) > 0 })

	for _, keepLeases := range []bool{true, false} {
		client.Kill(t)
		m.Run(t, "ip", "address", "flush", "dev", "eth0")
		if !keepLeases {
			lab.Must(t, os.RemoveAll(m.file("nm")))
		}
		discovers := len(srv.Log.Lines("request=DISCOVER"))
		if client, e = m.networkManager(t); e["ip_address"] != address {
			t.Errorf("after a reboot, with stored leases %t: lease %v, want address %s", keepLeases, e, address)
		}
		if discovered := len(srv.Log.Lines("request=DISCOVER")) > discovers; discovered == keepLeases {
			t.Errorf("after a reboot, with stored leases %t: DHCPDISCOVER sent: %t", keepLeases, discovered)
		}
	}
}
