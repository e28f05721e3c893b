package ads

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/densityops/oooi/test/lab"

	"github.com/densityops/oooi/xdsd/internal/ads/adstest"
)

func TestSocketIsPrivate(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	path := socketPath(t)
	l, err := ListenUnix(t.Context(), path)
	lab.Must(t, err)
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if got := l.Addr().String(); got != path {
		t.Errorf("listens on %s", got)
	}
	lab.Report(t, l.Close())
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket exists after its listener was closed")
	}
}

func TestExistingSocket(t *testing.T) {
	bind := func(t *testing.T, path string) *net.UnixListener {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		lab.Must(t, err)
		return l
	}
	for _, test := range []struct {
		name string
		make func(*testing.T, string)
		want string // in the error; empty for none
	}{
		{"stale socket", func(t *testing.T, path string) {
			l := bind(t, path)
			l.SetUnlinkOnClose(false)
			lab.Must(t, l.Close())
		}, ""},
		{"socket in use", func(t *testing.T, path string) {
			l := bind(t, path)
			t.Cleanup(func() { _ = l.Close() })
		}, "another process listens"},
		{"regular file", func(t *testing.T, path string) {
			lab.Must(t, os.WriteFile(path, nil, 0o600))
		}, "not a socket"},
		{"symbolic link", func(t *testing.T, path string) {
			lab.Must(t, os.Symlink("/dev/null", path))
		}, "not a socket"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := socketPath(t)
			test.make(t, path)
			l, err := ListenUnix(t.Context(), path)
			if err == nil {
				_ = l.Close()
			}
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if _, err := os.Lstat(path); test.want != "" && err != nil {
				t.Errorf("the existing file was removed: %v", err)
			}
		})
	}
}

func TestListenerThatFailsIsReported(t *testing.T) {
	l, err := ListenUnix(t.Context(), socketPath(t))
	lab.Must(t, err)
	lab.Must(t, l.Close())
	if err := newServer(t, Options{}).Serve(t.Context(), l); err == nil {
		t.Error("serving on a closed listener returned no error")
	}
}

func TestShutdownClosesStreamsAndStopsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	s := newServer(t, Options{})
	s.Set(tenant, baseResources())
	conn, stop := serve(t, s)
	var all []*adstest.Client
	for _, id := range []string{"a", "b"} {
		all = append(all, connect(t, conn, adstest.Options{Cluster: tenant, ID: id}))
	}
	awaitProxy(t, s, tenant, current(len(all)))
	stop()
	if p, _ := proxyState(s, tenant); len(p.Envoys) != 0 {
		t.Errorf("connected after shutdown: %+v", p.Envoys)
	}
	for _, c := range all {
		if _, err := c.Await(timeoutContext(t), func(*adstest.View) bool { return false }); err == nil {
			t.Error("a stream is open after shutdown")
		}
		c.Close()
	}
	_ = conn.Close()
	lab.Await(t, "the goroutines to end", func() string {
		if runtime.NumGoroutine() <= before {
			return ""
		}
		stacks := make([]byte, 1<<20)
		return fmt.Sprintf("%d goroutines, before: %d\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
	})
}
