//go:build vm

package vm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestWorkerBoots boots a VM on the VLAN whose NetworkManager gets its address from coredhcp. The VM fetches
// its ignition by name, through CoreDNS and Envoy, and keeps its address across a reboot and a live
// migration.
func TestWorkerBoots(t *testing.T) {
	image := image(t)
	s := newSite(t)
	vm := lab.StartVM(t, lab.VMConfig{
		Image: image, Memory: 768, NICs: []lab.NIC{{Bridge: vlan, MAC: workerMAC}}, Services: []string{"NetworkManager.service", "chrony.service"},
	})
	fetch := s.ignitionFetcher(t, vm)
	address := awaitWorker(t, vm)
	fetch("after its first boot")

	boot := vm.Run(t, "cat /proc/sys/kernel/random/boot_id")
	vm.Reboot(t)
	if current := awaitWorker(t, vm); current != address {
		t.Errorf("address was %s, after a reboot it is %s", address, current)
	}
	fetch("after a reboot")

	before := vm.Run(t, "cat /proc/sys/kernel/random/boot_id")
	if before == boot {
		t.Error("the VM has not rebooted")
	}
	renewals := func() int { return len(s.coredhcp.Log.Lines("request=REQUEST reply=ACK", workerMAC)) }
	vm.Migrate(t, lab.NIC{Bridge: otherHostBridge, MAC: workerMAC})
	fetch("after a migration")
	if after := vm.Run(t, "cat /proc/sys/kernel/random/boot_id"); after != before {
		t.Error("the VM rebooted instead of migrating")
	}
	n := renewals()
	vm.Run(t, "nmcli connection up $(nmcli -g GENERAL.CON-UUID device show eth0)")
	if current := awaitWorker(t, vm); current != address {
		t.Errorf("address was %s, after a migration it is %s", address, current)
	}
	if renewals() == n {
		t.Error("the VM has not renewed its lease after the migration")
	}
}

// awaitWorker waits until the VM has applied all options of its lease, and returns its address.
func awaitWorker(t *testing.T, vm *lab.VM) string {
	t.Helper()
	vm.Await(t, "nmcli -g GENERAL.STATE device show eth0", func(out string) bool { return strings.HasPrefix(out, "100 ") })
	for _, check := range []struct{ command, want string }{
		{"hostname", workerName + "\n"},
		{"cat /sys/class/net/eth0/mtu", "1400\n"},
		{"ip route show 10.0.0.0/8", "10.0.0.0/8 via 192.0.2.9 dev eth0 "},
		{"ip route show default", "default via " + router + " dev eth0 "},
		{"cat /etc/resolv.conf", "search demo.lab.example.com\nnameserver " + dnsServer + "\n"},
		{"chronyc -n sources", " " + ntpServer + " "},
	} {
		vm.Await(t, check.command, func(out string) bool { return strings.Contains(out, check.want) })
	}
	address := strings.TrimSuffix(vm.Run(t, "nmcli -g IP4.ADDRESS device show eth0"), "/24\n")
	if !strings.HasPrefix(address, "192.0.2.1") {
		t.Fatalf("the VM has address %q", address)
	}
	return address
}

// ignitionFetcher installs the CA of the ignition server on the VM, and returns a function that fetches the
// ignition and checks it.
func (s *site) ignitionFetcher(t *testing.T, vm *lab.VM) (fetch func(when string)) {
	t.Helper()
	vm.Run(t, fmt.Sprintf("cat >/etc/ssl/ignition.crt <<X\n%sX", s.ca.PEM()))
	return func(when string) {
		t.Helper()
		const curl = "curl --silent --show-error --max-time 60 --write-out ' from %{remote_ip}' https://" + ignitionName + "/ignition"
		if got, want := vm.Run(t, curl+" --cacert /etc/ssl/ignition.crt"), ignition+" from "+proxyServer; got != want {
			t.Errorf("%s the VM fetches %q, want %q", when, got, want)
		}
		// The VM verifies the certificate: without the CA the request fails.
		if got := vm.Run(t, curl+" --cacert /etc/ssl/certs/ca-certificates.crt || echo exit code $?"); !strings.Contains(got, "exit code 60") {
			t.Errorf("%s the VM fetches %q without the CA", when, got)
		}
	}
}
