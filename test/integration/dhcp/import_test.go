package dhcp_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestImportAddressesInUse imports the addresses of running instances into an empty lease file, and then serves them. The tests of
// plugins/leasedb import them into Lease objects as well.
func TestImportAddressesInUse(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	uses := func(addresses string) string {
		first, _, _ := strings.Cut(addresses, ",")
		return `status: {interfaces: [{name: vlan, ipAddress: ` + first + `, ipAddresses: [` + addresses + `], infoSource: "domain, guest-agent"}]}`
	}
	c.cp.MustApply(t, c.vm("worker-0", mac1, uses("192.0.2.150, fe80::1, 192.0.2.151")), c.vm("worker-1", mac2, uses("198.51.100.7")),
		c.vm("worker-2", mac3, uses("192.0.2.150, 192.0.2.160")))
	srv := s.newServer(t, "192.0.2.2", c.plugins("192.0.2.2")...)
	srv.kubeconfig(t, c.cp)
	command := append(unprivileged(), srv.binary, "import", "--config", filepath.Join(srv.dir, "config.yml"))
	lines := func(out string) (fields []string) {
		for line := range strings.Lines(strings.ReplaceAll(out, c.namespace, "NS")) {
			fields = append(fields, strings.Join(strings.Fields(line), " "))
		}
		return fields
	}
	want := []string{
		"ADDRESS VM INTERFACE MAC RESULT",
		"192.0.2.150 NS/worker-0 vlan " + mac1 + " new",
		"192.0.2.151 NS/worker-0 vlan " + mac1 + " skipped: the interface has another address, 192.0.2.150",
		"198.51.100.7 NS/worker-1 vlan " + mac2 + " skipped: the address is not in the ranges of the pool",
		"192.0.2.150 NS/worker-2 vlan " + mac3 + " skipped: the address is bound to another client",
		"192.0.2.160 NS/worker-2 vlan " + mac3 + " new",
		"server4: 2 new (use --write to write them), 0 existing, 3 skipped",
	}
	check := func(out string) {
		t.Helper()
		if got := lines(out); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("output\n%s", out)
		}
	}
	check(srv.Run(t, command...))
	want[6] = "server4: 2 written, 0 existing, 3 skipped"
	check(srv.Run(t, append(command, "--write")...))
	want[1], want[5] = strings.Replace(want[1], "new", "exists", 1), strings.Replace(want[5], "new", "exists", 1)
	want[6] = "server4: 0 written, 2 existing, 3 skipped"
	check(srv.Run(t, append(command, "--write")...))

	srv.start(t)
	for mac, address := range map[string]string{mac1: "192.0.2.150", mac3: "192.0.2.160"} {
		if ack := s.newMachine(t, mac).dial(t, 68).lease(t); ack.YourIPAddr.String() != address {
			t.Errorf("%s leases %s, want %s", mac, ack.YourIPAddr, address)
		}
	}
	out, err := srv.Command(t.Context(), command...).CombinedOutput() // the server has locked the file
	if err == nil || !strings.Contains(string(out), "is in use by another process") {
		t.Errorf("import while the server runs: %v: %s", err, out)
	}
}
