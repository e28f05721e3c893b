package dhcp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/lab"
)

// TestDhclientGetsAnIPv6Address asks for one, as a client whose DUID has its MAC address.
func TestDhclientGetsAnIPv6Address(t *testing.T) {
	s, c := newSite(t), newCluster(t)
	srv := s.newServer(t, "192.0.2.2", c.plugins("192.0.2.2")...)
	srv.kubeconfig(t, c.cp)
	text := srv.config(t) + fmt.Sprintf(`
server6:
  listen: ["[ff02::1:2%%net1]:547"]
  plugins:
  - server_id: LL 02:00:00:00:00:fe
  - kubevirt: %q
  - leasedb: "store=bolt file=%s/leases6.db cidr=2001:db8::/64 range=2001:db8::100-2001:db8::1ff lease=1h"
  - dns: 2001:db8::53
`, strings.ReplaceAll(strings.TrimPrefix(c.plugins("")[0], "kubevirt "), "DIR", srv.dir), srv.dir)
	srv.write(t, "config.yml", text)
	srv.start(t)
	c.run(t, srv, "worker", mac1, "")
	m := s.newMachine(t, mac1)
	lab.Poll(t, "the interface to have a link-local address", func() bool {
		out := m.Run(t, "ip", "-6", "-o", "address", "show", "dev", "eth0", "scope", "link")
		return out != "" && !strings.Contains(out, "tentative")
	})
	conf := m.write(t, "dhclient6.conf", "timeout 30;\nrequest dhcp6.name-servers;\n")
	m.client(t, "dhclient", "-6", "-v", "-d", "-D", "LL", "-cf", conf, "-sf", m.script(t), "-lf", m.file("leases6"), "-pf", m.file("pid6"), "eth0")
	e := m.told(t, 0, "BOUND6")
	if !strings.HasPrefix(e["new_ip6_address"], "2001:db8::1") || e["new_dhcp6_name_servers"] != "2001:db8::53" {
		t.Errorf("it is told %v", e)
	}
}
