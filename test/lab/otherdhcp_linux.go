package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// OtherDHCP starts another DHCP server on a bridge, such as that of a router. It has the address with the host number 239
// in the network, which is given by its first three numbers.
func OtherDHCP(t *testing.T, bridge, network string) (stop func()) {
	t.Helper()
	m := NewMachine(t, bridge, "02:00:00:00:50:e0")
	m.Run(t, "ip", "address", "add", network+".239/24", "dev", "eth0")
	leases, config := filepath.Join(m.Dir, "leases"), filepath.Join(m.Dir, "udhcpd.conf")
	text := "start $net.240\nend $net.245\ninterface eth0\noption subnet 255.255.255.0\noption dns 203.0.113.53\noption router $net.254\nlease_file " + leases + "\npidfile " + leases + ".pid\n"
	Must(t, errors.Join(os.WriteFile(leases, nil, 0o600), os.WriteFile(config, []byte(strings.ReplaceAll(text, "$net", network)), 0o600)))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := m.Command(ctx, "busybox", "udhcpd", "-f", config)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		cancel()
		_ = cmd.Wait() // an error because it was killed
	})
	t.Cleanup(end)
	return end
}

// RequestAddress requests an address from DHCP on a machine, without configuring it.
func RequestAddress(t *testing.T, m *Machine) {
	t.Helper()
	m.Run(t, "busybox", "udhcpc", "-i", "eth0", "-f", "-n", "-q", "-t", "20", "-T", "1", "-s", "/bin/true")
}
