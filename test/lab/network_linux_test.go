package lab

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestBlackhole(t *testing.T) {
	t.Setenv("GODEBUG", "multipathtcp=0") // as in a Network
	b := TCPBackend(t, "127.0.3.9:0", "b")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if name, err := Greeting(t.Context(), conn); err != nil || name != "b" {
		t.Fatalf("%q, %v", name, err)
	}
	checkEcho(t, conn)

	b.Blackhole(t)
	if _, err := conn.Write([]byte("lost")); err != nil {
		t.Errorf("writing to an established connection: %v", err)
	}
	// Long enough for an echo that is on its way.
	if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, error %v, want a timeout", n, err)
	}
	dialer := net.Dialer{Timeout: 200 * time.Millisecond}
	var timeout net.Error
	if conn, err := dialer.DialContext(t.Context(), "tcp", b.Addr().String()); err == nil {
		_ = conn.Close()
		t.Error("the backend accepts connections")
	} else if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("connecting: %v, want a timeout", err)
	}
}
