package dhcp_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

const networkd = "/lib/systemd/systemd-networkd"

// networkdScript starts systemd-networkd with its own /run, which has its configuration and its leases. With
// a read-only /sys it does not wait for udev.
const networkdScript = `#!/bin/sh
set -e
mount -t tmpfs none /run
mount -t sysfs -o ro none /sys
mkdir -p DIR/netif/links DIR/netif/leases DIR/netif/lldp /run/systemd/netif /run/systemd/network
mount --bind DIR/netif /run/systemd/netif
chown -R systemd-network: /run/systemd/netif
cat > /run/systemd/network/10-eth0.network <<X
[Match]
Name=eth0
[Network]
DHCP=ipv4
LinkLocalAddressing=no
IPv6AcceptRA=no
[DHCPv4]
UseMTU=yes
UseDomains=yes
X
SYSTEMD_LOG_TARGET=console exec ` + networkd + `
`

// networkd starts systemd-networkd and waits for a lease.
func (m *machine) networkd(t *testing.T) (client *lab.Daemon, lease event) {
	t.Helper()
	client = m.startClient(t, "unshare", "--mount", m.write(t, "networkd", strings.ReplaceAll(networkdScript, "DIR", m.Dir)))
	lab.Poll(t, "a lease", func() bool {
		lease = m.networkdLease(t)
		return lease != nil
	})
	return client, lease
}

// networkdLease returns the lease that systemd-networkd has written to a file; nil if there is none.
func (m *machine) networkdLease(t *testing.T) event {
	t.Helper()
	paths, err := filepath.Glob(m.file("netif/leases/*"))
	lab.Must(t, err)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // networkd has just replaced it
		}
		e := event{}
		for line := range strings.Lines(string(data)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			e[key] = value
		}
		if e["ADDRESS"] != "" {
			return e
		}
	}
	return nil
}

// TestNetworkdLifecycle tests a client that identifies itself by a DUID.
func TestNetworkdLifecycle(t *testing.T) {
	s, _, srv := newWorker(t)
	m := s.newMachine(t, mac1)
	client, e := m.networkd(t)
	for key, want := range map[string]string{
		"NETMASK": "255.255.255.0", "DNS": "192.0.2.53", "DOMAINNAME": "demo.example.com", "HOSTNAME": "worker", "MTU": "1400",
		"SERVER_ADDRESS": "192.0.2.2", "LIFETIME": "3600",
	} {
		if e[key] != want {
			t.Errorf("%s is %q, want %q in %v", key, e[key], want, e)
		}
	}
	address := e["ADDRESS"]
	lab.Poll(t, "the interface to have the address", func() bool { return m.address(t) == address })
	for to, by := range map[string]string{"10.0.0.0/8": "192.0.2.9", "default": "192.0.2.1"} {
		lab.Poll(t, "a route to "+to, func() bool { return strings.Contains(m.Run(t, "ip", "route", "show", to), "via "+by+" ") })
	}
	lab.Poll(t, "the lease to be renewed", func() bool { return len(srv.Log.Lines("request=REQUEST reply=ACK", "to="+address+":68")) > 0 })

	client.Terminate(t)
	srv.awaitRelease(t)
	m.Run(t, "ip", "address", "flush", "dev", "eth0")
	lab.Must(t, os.RemoveAll(m.file("netif")))
	if _, next := m.networkd(t); next["ADDRESS"] != address {
		t.Errorf("address was %s, lease is now %v", address, next)
	}
}
