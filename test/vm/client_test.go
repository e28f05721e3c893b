//go:build vm

package vm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestWorkerBoots boots a virtual machine on the VLAN, whose NetworkManager gets its address from coredhcp. It fetches its
// ignition by name, through CoreDNS and Envoy, and keeps its address over a reboot and a live migration.
func TestWorkerBoots(t *testing.T) {
	image := image(t)
	s := newSite(t)
	vm := lab.StartVM(t, lab.VMConfig{
		Image: image, Memory: 768, NICs: []lab.NIC{{Bridge: vlan, MAC: workerMAC}}, Services: []string{"NetworkManager.service", "chrony.service"},
	})
	fetch := s.fetcher(t, vm)
	address := worker(t, vm)
	fetch("after its first boot")

	boot := vm.Run(t, "cat /proc/sys/kernel/random/boot_id")
	vm.Reboot(t)
	if again := worker(t, vm); again != address {
		t.Errorf("it had %s, and after a reboot it has %s", address, again)
	}
	fetch("after a reboot")

	before := vm.Run(t, "cat /proc/sys/kernel/random/boot_id")
	if before == boot {
		t.Error("it has not booted again")
	}
	renewals := func() int { return len(s.coredhcp.Log.Lines("request=REQUEST answer=ACK", workerMAC)) }
	vm.Migrate(t, lab.NIC{Bridge: otherHost, MAC: workerMAC})
	fetch("after a migration")
	if after := vm.Run(t, "cat /proc/sys/kernel/random/boot_id"); after != before {
		t.Error("it has booted instead of migrating")
	}
	n := renewals()
	vm.Run(t, "nmcli connection up $(nmcli -g GENERAL.CON-UUID device show eth0)")
	if again := worker(t, vm); again != address {
		t.Errorf("it had %s, and after a migration it has %s", address, again)
	}
	if renewals() == n {
		t.Error("after a migration it has not asked coredhcp again")
	}
}

// worker waits until the machine has everything that DHCP told it, and returns its address.
func worker(t *testing.T, vm *lab.VM) string {
	t.Helper()
	vm.Await(t, "nmcli -g GENERAL.STATE device show eth0", func(out string) bool { return strings.HasPrefix(out, "100 ") })
	for _, has := range []struct{ command, want string }{
		{"hostname", workerName + "\n"},
		{"cat /sys/class/net/eth0/mtu", "1400\n"},
		{"ip route show 10.0.0.0/8", "10.0.0.0/8 via 192.0.2.9 dev eth0 "},
		{"ip route show default", "default via " + router + " dev eth0 "},
		{"cat /etc/resolv.conf", "search demo.lab.example.com\nnameserver " + dnsServer + "\n"},
		{"chronyc -n sources", " " + ntpServer + " "},
	} {
		vm.Await(t, has.command, func(out string) bool { return strings.Contains(out, has.want) })
	}
	address := strings.TrimSuffix(vm.Run(t, "nmcli -g IP4.ADDRESS device show eth0"), "/24\n")
	if !strings.HasPrefix(address, "192.0.2.1") {
		t.Fatalf("the machine has the address %q", address)
	}
	return address
}

// fetcher has the machine know the authority that the ignition server's certificate is of, and returns what fetches the
// ignition.
func (s *site) fetcher(t *testing.T, vm *lab.VM) (fetch func(when string)) {
	t.Helper()
	vm.Run(t, fmt.Sprintf("cat >/etc/ssl/ignition.crt <<X\n%sX", s.ca.PEM()))
	return func(when string) {
		t.Helper()
		const curl = "curl --silent --show-error --max-time 60 --write-out ' from %{remote_ip}' https://" + ignitionName + "/ignition"
		if got, want := vm.Run(t, curl+" --cacert /etc/ssl/ignition.crt"), ignition+" from "+proxyServer; got != want {
			t.Errorf("%s it fetches %q, want %q", when, got, want)
		}
		// It verifies the certificate: without its authority there is nothing.
		if got := vm.Run(t, curl+" --cacert /etc/ssl/certs/ca-certificates.crt || echo exit code $?"); !strings.Contains(got, "exit code 60") {
			t.Errorf("%s, without the authority, it fetches %q", when, got)
		}
	}
}
