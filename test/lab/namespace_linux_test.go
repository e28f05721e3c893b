package lab

import (
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestCable connects two network namespaces, and dials a listener in one from the other.
func TestCable(t *testing.T) {
	if n, err := OpenNamespace(); err == nil {
		_ = n.Close()
	} else if errors.Is(err, unix.EPERM) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	here, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	a, b := NewNamespace(t), NewNamespace(t)
	err = Cable(End{In: a, Device: "eth0", Addresses: []string{"192.0.2.1/24"}}, End{In: b, MAC: "02:00:00:00:00:07", Addresses: []string{"192.0.2.2/24"}})
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	err = b.Do(func() (err error) {
		listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", "192.0.2.2:443")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	dial := func() error {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", "192.0.2.2:443")
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := a.Do(dial); err != nil {
		t.Errorf("from the other end: %v", err)
	}
	if neighbour := a.Run(t, "ip", "neighbour", "show", "192.0.2.2", "dev", "eth0"); !strings.Contains(neighbour, "02:00:00:00:00:07") {
		t.Errorf("neighbour entry is %q", neighbour)
	}
	// All threads are back in their namespace.
	err = restoringNamespace(func() error {
		now, err := os.Readlink(threadNamespace)
		if now != here {
			t.Errorf("thread is in namespace %s, want %s", now, here)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMainThreadStaysInItsNamespace enters namespaces from many goroutines. Cable tells other programs the
// namespace of this process by /proc/PID/ns/net, which is that of the main thread.
func TestMainThreadStaysInItsNamespace(t *testing.T) {
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			err := restoringNamespace(func() error {
				if unix.Gettid() == os.Getpid() {
					t.Error("the main thread can be in another namespace")
				}
				time.Sleep(time.Millisecond)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}
