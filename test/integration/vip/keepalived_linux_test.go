package vip_test

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/ipv4"

	"github.com/densityops/oooi/test/lab"
)

var compareKeepalived = flag.Bool("keepalived", false, "run the tests with keepalived, for comparison")

const keepalivedPath = "/usr/sbin/keepalived"

// keepalived is keepalived, configured as OpenShift does for its own addresses: every replica is a backup
// with the same priority, so that the address does not move back, and a script checks whether the proxy is
// ready.
var keepalived = implementation{name: "keepalived", command: func(tb testing.TB, _ *site, i *replica) *exec.Cmd {
	tb.Helper()
	config := filepath.Join(i.dir, "keepalived.conf")
	text := fmt.Sprintf(`global_defs {
  script_user root
  enable_script_security
  vrrp_garp_master_repeat 5
}
vrrp_script ready {
  script "/usr/bin/curl -fsS -o /dev/null --max-time 1 http://127.0.0.1:9901/ready"
  interval 1
  fall 2
  rise 2
}
vrrp_instance proxy {
  state BACKUP
  nopreempt
  interface net1
  virtual_router_id 51
  priority 100
  advert_int 1
  virtual_ipaddress {
    %s/32 dev net1
  }
  virtual_ipaddress_excluded {
    %s/128 dev net1
  }
  track_script {
    ready
  }
}
`, floating, floating6)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	for _, file := range []string{"pid", "vrrp"} { // left by a killed process
		if err := os.RemoveAll(filepath.Join(i.dir, file)); err != nil {
			tb.Fatal(err)
		}
	}
	// A PID namespace, so that all processes are killed together. unshare needs SYS_ADMIN for it.
	return i.Command(context.Background(), "setpriv", "--no-new-privs", "--bounding-set", "-all,+net_admin,+net_raw,+setuid,+setgid,+sys_admin",
		"unshare", "--pid", "--fork", "--kill-child", keepalivedPath, "--dont-fork", "--log-console", "--vrrp",
		"--use-file", config, "--pid", filepath.Join(i.dir, "pid"), "--vrrp_pid", filepath.Join(i.dir, "vrrp"))
}, end: func(tb testing.TB, i *replica) {
	tb.Helper()
	pids, err := exec.Command("pgrep", "--oldest", "--exact", "--full", keepalivedPath+" .* "+filepath.Join(i.dir, "pid")+" .*").Output()
	if err != nil {
		tb.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(pids)))
	if err != nil {
		tb.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		tb.Fatal(err)
	}
	i.Terminate(tb)
}}

// TestKeepalivedYieldsToATenant sends an advertisement with a higher priority once a second.
func TestKeepalivedYieldsToATenant(t *testing.T) {
	if !*compareKeepalived {
		t.Skip("needs the flag -keepalived")
	}
	s := newSite(t, keepalived, 2)
	s.holder(t)
	at := lab.NewNamespace(t)
	if err := lab.Cable(lab.End{Bridge: strings.Replace(s.trunk, "trunk", "near", 1)}, lab.End{In: at, Device: "eth0", Addresses: []string{"192.0.2.66/24"}}); err != nil {
		t.Fatal(err)
	}
	var conn net.PacketConn
	err := at.Do(func() (err error) {
		if conn, err = new(net.ListenConfig).ListenPacket(t.Context(), "ip4:112", "192.0.2.66"); err != nil {
			return err
		}
		if err := ipv4.NewPacketConn(conn).SetMulticastTTL(255); err != nil {
			return err
		}
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		return ipv4.NewPacketConn(conn).SetMulticastInterface(eth0)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	// RFC 3768, 5.1: version and type, virtual router ID, priority, one address, no authentication, interval
	// of one second.
	virtual := floating.As4()
	packet := append([]byte{2<<4 | 1, 51, 254, 1, 0, 1, 0, 0}, virtual[:]...)
	packet = append(packet, make([]byte, 8)...)
	sum := uint32(0)
	for n := 0; n < len(packet); n += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[n:]))
	}
	binary.BigEndian.PutUint16(packet[6:], ^uint16(sum+sum>>16))
	from := time.Now()
	const times = 10
	for range times {
		if _, err := conn.WriteTo(packet, &net.IPAddr{IP: net.IPv4(224, 0, 0, 18)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	t.Logf("%d packets, one a second: %.1f seconds without service", times, s.timeWithoutService(t, from).Seconds())
}
