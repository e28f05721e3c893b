package lab

import (
	"context"
	"os/exec"
	"strings"
	"testing"
)

// OtherDHCP starts another DHCP server on a bridge, such as a router's. It has the address with the host number 239
// in the network, which is given by its first three numbers.
func OtherDHCP(t *testing.T, bridge, network string) (stop func()) {
	t.Helper()
	m := NewMachine(t, bridge, "02:00:00:00:50:e0")
	m.Run(t, "ip", "address", "add", network+".239/24", "dev", "eth0")
	leases := WriteFile(t, "", m.Dir, "leases")
	config := WriteFile(t, strings.ReplaceAll(otherDHCPConfig, "$net", network)+"lease_file "+leases+"\npidfile "+leases+".pid\n", m.Dir, "udhcpd.conf")
	d := NewDaemon(t, "udhcpd", func() *exec.Cmd { return m.Command(context.Background(), "busybox", "udhcpd", "-f", config) })
	d.Start(t)
	return func() { d.Kill(t) }
}

// otherDHCPConfig is the configuration of OtherDHCP, in which $net is the network.
const otherDHCPConfig = `
start $net.240
end $net.245
interface eth0
option subnet 255.255.255.0
option dns 203.0.113.53
option router $net.254
`
