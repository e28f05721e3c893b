package lab

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Build returns the path of the binary that is etcd and all Kubernetes
// components, after building it if it is missing or older than its source.
// Concurrent calls, of other processes too, build it once.
func Build(ctx context.Context, logf Logf) (string, error) {
	return program{
		name:  "controlplane",
		what:  "etcd and the components of Kubernetes",
		takes: "about 6 minutes on two cores with cold caches, 30 seconds with warm ones",
		args:  controlPlaneArgs,
	}.build(ctx, logf)
}

// A program is built from a module of its own in this repository's folder test.
type program struct {
	name        string                                // of the binary
	module      string                                // the folder of its module, if it has another name
	what, takes string                                // what is built, and how long that takes, to tell the user
	args        func(source string) ([]string, error) // see buildArgs
}

// build builds the binary if it is not up to date, and returns its path.
func (p program) build(ctx context.Context, logf Logf) (string, error) {
	dir, err := labDir()
	if err != nil {
		return "", err
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, "test", cmp.Or(p.module, p.name))
	args, err := p.args(source)
	if err != nil {
		return "", err
	}
	sum, err := sourceSum(source, args)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, p.name)
	return binary, once(ctx, binary, sum, 30*time.Minute, logf, func(ctx context.Context) error {
		logf.printf("building %s into %s: %s", p.what, binary, p.takes)
		return build(ctx, source, args, binary, logf)
	})
}

// once makes a binary in the lab's folder unless it is there already, made of what sum
// stands for. Of concurrent calls, of other processes too, one makes it.
func once(ctx context.Context, binary, sum string, limit time.Duration, logf Logf, build func(context.Context) error) error {
	if upToDate(binary, sum) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// One lock for all: two builds at a time would but slow each other down.
	unlock, err := lock(ctx, filepath.Join(filepath.Dir(binary), "lock"), logf)
	if err != nil {
		return err
	}
	defer unlock()
	if upToDate(binary, sum) { // another process has made it while we waited
		return nil
	}
	if err := build(ctx); err != nil {
		return err
	}
	if err := replaceFile(binary+".sum", []byte(sum)); err != nil {
		return fmt.Errorf("recording what %s was made from: %w", binary, err)
	}
	return nil
}

// sourceSum identifies what the binary is built from, and how.
func sourceSum(dir string, args []string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	files = append(files, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
	slices.Sort(files)
	h := sha256.New()
	h.Write(fmt.Appendf(nil, "%s %s/%s %q\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, args))
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("reading the source of a program: %w", err)
		}
		h.Write(fmt.Appendf(nil, "%s %d\n", filepath.Base(file), len(data)))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// upToDate trusts the sum file: it is written after the binary.
func upToDate(binary, sum string) bool {
	built, err := os.ReadFile(binary + ".sum")
	if err != nil || string(built) != sum {
		return false
	}
	_, err = os.Stat(binary)
	return err == nil
}

// kubernetesVersion is the line of go.mod that says what is built.
var kubernetesVersion = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`)

// controlPlaneArgs are the buildArgs with the version of Kubernetes.
func controlPlaneArgs(source string) ([]string, error) {
	gomod, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("reading the source of the control plane: %w", err)
	}
	version := kubernetesVersion.FindSubmatch(gomod)
	if version == nil {
		return nil, fmt.Errorf("%s: no version of k8s.io/kubernetes in go.mod", source)
	}
	const stamp = "-X k8s.io/component-base/version."
	return buildArgs(fmt.Sprintf("-s -w %[1]sgitVersion=%[2]s %[1]sgitMajor=%[3]s %[1]sgitMinor=%[4]s", stamp, version[1], version[2], version[3])), nil
}

// buildArgs are those of the go command, all but the output, for the package
// in the source folder. To build another one, append it.
func buildArgs(ldflags string) []string {
	return []string{"build", "-mod=readonly", "-buildvcs=false", "-ldflags=" + ldflags}
}

func build(ctx context.Context, source string, args []string, binary string, logf Logf) error {
	scratch := binary + ".new"
	args = slices.Insert(slices.Clone(args), 1, "-o", scratch)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets it clean up
	cmd.WaitDelay = 10 * time.Second
	cmd.Dir = source
	// Without C: no compiler needed, and a binary that runs anywhere.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output

	started := time.Now()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("building %s (is the go command in PATH?): %w", binary, err)
	}
	var err error
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for running := true; running; {
		select {
		case err = <-done:
			running = false
		case <-tick.C:
			logf.printf("still building (%s)", time.Since(started).Round(time.Second))
		}
	}
	if err != nil {
		return fmt.Errorf("building %s in %s: %w (is the module proxy reachable?)\n%s", binary, source, errors.Join(err, ctx.Err()), lastLines(output.String(), 20))
	}
	if err := os.Rename(scratch, binary); err != nil {
		return fmt.Errorf("putting %s in place: %w", binary, err)
	}
	logf.printf("built in %s", time.Since(started).Round(time.Second))
	return nil
}

// lock takes the file lock at path, and waits for it as long as ctx allows.
func lock(ctx context.Context, path string, logf Logf) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking the lab folder: %w", err)
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // which unlocks
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

// replaceFile writes a file so that readers see the old or the new content.
func replaceFile(path string, data []byte) error {
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// lastLines returns the last n lines of s.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
