package ads

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenUnix listens on a Unix socket with mode 0600. It replaces a socket on which no process listens, and returns
// an error if another process listens on it, or if path is not a socket. Closing the listener removes the socket.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	if err := removeStaleSocket(ctx, path); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	config := net.ListenConfig{Control: setPrivateMode}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	return l, nil
}

// removeStaleSocket removes a socket on which no process listens. It returns an error if a process may be listening, or
// if path is not a socket, and nil if path does not exist.
func removeStaleSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("file exists and is not a socket")
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return errors.New("another process listens on this socket")
	case !errors.Is(err, syscall.ECONNREFUSED): // for example EAGAIN, if its backlog is full
		return fmt.Errorf("another process may be listening on this socket: %w", err)
	}
	return os.Remove(path)
}

// setPrivateMode sets the socket's mode before bind. Linux creates the file with the mode of the socket, less the
// umask, so that no other user can open it at any time.
func setPrivateMode(_, _ string, conn syscall.RawConn) error {
	var err error
	if e := conn.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}
