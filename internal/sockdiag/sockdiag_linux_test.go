package sockdiag

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/lab"
)

var network lab.Network

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

// TestResetConnections connects to floating and other addresses of servers of both IP versions and of both at once.
func TestResetConnections(t *testing.T) {
	network.Need(t)
	server, client := lab.NewNamespace(t), lab.NewNamespace(t)
	lab.Must(t, lab.Cable(
		lab.End{In: server, Device: "net1", Addresses: []string{"192.0.2.4/24", "192.0.2.5/24", "2001:db8::4/64", "2001:db8::5/64"}},
		lab.End{In: client, Device: "net1", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}},
	))
	if err := server.Do(func() error {
		lab.TCPBackend(t, "0.0.0.0:1", "IPv4")
		lab.TCPBackend(t, "192.0.2.4:2", "one address")
		lab.TCPBackend(t, "[::]:3", "both")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	connect := func(to string) net.Conn {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, err := client.Dial(ctx, netip.Addr{}, netip.MustParseAddrPort(to))
		lab.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := lab.Greeting(ctx, conn); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	floating := []string{"192.0.2.4:1", "192.0.2.4:2", "192.0.2.4:3", "[2001:db8::4]:3"}
	var reset, kept []net.Conn
	for _, to := range floating {
		reset = append(reset, connect(to))
	}
	for _, to := range []string{"192.0.2.5:1", "192.0.2.5:3", "[2001:db8::5]:3"} {
		kept = append(kept, connect(to))
	}
	var n int
	if err := server.Do(func() (err error) {
		n, err = Reset([]netip.Addr{netip.MustParseAddr("192.0.2.4"), netip.MustParseAddr("2001:db8::4")})
		return err
	}); err != nil || n != len(floating) {
		t.Fatalf("%d connections were reset, want %d: %v", n, len(floating), err)
	}
	exchange := func(conn net.Conn) error {
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("x")); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	for _, conn := range reset {
		if err := exchange(conn); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			t.Errorf("connection to %s: %v", conn.RemoteAddr(), err)
		}
	}
	for _, conn := range kept {
		if err := exchange(conn); err != nil {
			t.Errorf("connection to %s: %v", conn.RemoteAddr(), err)
		}
	}
	for _, to := range floating { // the servers still listen
		connect(to)
	}
}
