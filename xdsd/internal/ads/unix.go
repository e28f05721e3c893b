package ads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenUnix listens on a Unix socket that only this process's user can open. The
// socket of a process that is gone is replaced; that of one that lives is an error,
// as is a file of any other kind. Closing the listener removes the socket.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	unlock, err := lockDirectory(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	defer unlock()
	if err := clearSocket(ctx, path); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	config := net.ListenConfig{Control: private}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}

// lockDirectory keeps two processes that start at once from taking each other's
// socket for that of the dead.
func lockDirectory(path string) (unlock func(), err error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(dir.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = dir.Close() }, nil
}

// clearSocket removes a socket that nobody listens on.
func clearSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file, and it is no socket")
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return errors.New("another process serves on this socket")
	case !errors.Is(err, syscall.ECONNREFUSED): // say, its backlog is full
		return fmt.Errorf("another process may serve on this socket: %w", err)
	}
	return os.Remove(path)
}

// private sets the mode before the socket has a name: Linux gives the file the
// socket's own, less the umask. At no time can others open it.
func private(_, _ string, conn syscall.RawConn) error {
	var err error
	if e := conn.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}
