package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/densityops/oooi/internal/atomicfile"
)

// buildOnce calls build for a file in the lab's directory, unless the file was built from the same sum.
// Concurrent calls, including calls of other processes, build it once.
func buildOnce(ctx context.Context, binary, sum string, limit time.Duration, logf Logf, build func(context.Context) error) error {
	if upToDate(binary, sum) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// One lock for all files, because two builds at a time would only slow each other down.
	unlock, err := lock(ctx, filepath.Join(filepath.Dir(binary), "lock"), logf)
	if err != nil {
		return err
	}
	defer unlock()
	if upToDate(binary, sum) { // another process built it in the meantime
		return nil
	}
	if err := build(ctx); err != nil {
		return err
	}
	return atomicfile.Replace(binary+".sum", []byte(sum))
}

// upToDate compares only the sum file, which is written after the binary.
func upToDate(binary, sum string) bool {
	built, err := os.ReadFile(binary + ".sum")
	if err != nil || string(built) != sum {
		return false
	}
	_, err = os.Stat(binary)
	return err == nil
}

// buildFlags returns the arguments of go build with the flags of the Makefile, so that both share the build cache.
func buildFlags(args ...string) []string {
	return append([]string{"build", "-trimpath", "-tags=grpcnotrace"}, args...)
}

// goBuild builds a main package in the directory source, and reports progress.
func goBuild(ctx context.Context, source, binary string, logf Logf, args ...string) error {
	scratch := binary + ".new"
	cmd := exec.CommandContext(ctx, "go", slices.Concat(buildFlags("-mod=readonly", "-buildvcs=false", "-o", scratch), args)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets the go command clean up
	cmd.Dir = source
	// Without cgo the build needs no C compiler and the binary runs on any distribution. By default the Go
	// compiler spends a quarter of its time on garbage collection.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOGC=400", "GOMEMLIMIT=4GiB")
	started := time.Now()
	if err := runCommand(cmd); err != nil {
		return fmt.Errorf("building %s in %s (is the module proxy reachable?): %w", binary, source, errors.Join(err, ctx.Err()))
	}
	if err := os.Rename(scratch, binary); err != nil {
		return fmt.Errorf("renaming %s: %w", binary, err)
	}
	logf.printf("built in %s", time.Since(started).Round(time.Second))
	return nil
}

// lock acquires the file lock at path, and waits for it until ctx is done.
func lock(ctx context.Context, path string, logf Logf) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the lab directory: %w", err)
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // closing unlocks
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("locking %s: %w", path, errors.Join(err, f.Close()))
		}
		if !waiting {
			logf.printf("waiting for another process that builds for the lab (it holds %s)", path)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for the lock %s, which another process holds: %w", path, errors.Join(ctx.Err(), f.Close()))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// lastLines returns the last n lines of s.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
