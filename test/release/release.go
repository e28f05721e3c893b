// Package release builds releases in tests, and publishes them to a registry and a file server on the loopback interface.
package release

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// A Publisher builds releases, pushes their images and charts to a registry, and serves their files.
type Publisher struct {
	// Registry is the host and port of an OCI registry in memory. It lacks the referrers API, like many registries.
	Registry string
	// Files is the URL of a file server with the directory Folder.
	Files, Folder string

	registry *lab.Daemon
	tools    string // directory with the programs crane, krew and release
}

// NewPublisher builds the programs, and starts the registry and the file server, which end with the test.
func NewPublisher(tb testing.TB) *Publisher {
	tb.Helper()
	root, err := lab.Root()
	lab.Must(tb, err)
	p := &Publisher{Folder: tb.TempDir(), tools: tb.TempDir()}
	Run(tb, "", nil, "go", "build", "-C", filepath.Join(root, "tools", "release"), "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", p.tools+"/",
		".", "github.com/google/go-containerregistry/cmd/crane", "sigs.k8s.io/krew/cmd/krew")
	p.Registry, p.registry = p.NewRegistry(tb)
	server := httptest.NewServer(http.FileServer(http.Dir(p.Folder)))
	tb.Cleanup(server.Close)
	p.Files = server.URL
	return p
}

// StopRegistry stops the registry before the test ends.
func (p *Publisher) StopRegistry(tb testing.TB) {
	tb.Helper()
	p.registry.Kill(tb)
}

// Run runs a program in a directory, with additional environment variables, and returns its standard output. The test
// fails if the program does.
func Run(tb testing.TB, dir string, env []string, name string, args ...string) string {
	tb.Helper()
	out, err := Try(tb, dir, env, name, args...)
	lab.Must(tb, err)
	return out
}

// Try is Run for a program that may fail. The error has the output.
func Try(tb testing.TB, dir string, env []string, name string, args ...string) (string, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", cmd, err, out, &stderr)
	}
	return string(out), nil
}

// Tool returns the path of crane or krew.
func (p *Publisher) Tool(name string) string { return filepath.Join(p.tools, name) }

// Crane runs crane.
func (p *Publisher) Crane(tb testing.TB, args ...string) string {
	tb.Helper()
	return Run(tb, "", nil, p.Tool("crane"), args...)
}

// NewRegistry starts a registry on the loopback interface, which ends with the test. It returns its host and port.
func (p *Publisher) NewRegistry(tb testing.TB) (string, *lab.Daemon) {
	tb.Helper()
	address := lab.FreeAddress(tb)
	d := lab.NewDaemon(tb, "registry", func() *exec.Cmd {
		return exec.Command(p.Tool("crane"), "registry", "serve", "--address", address) //nolint:noctx // the test kills it
	})
	d.Start(tb)
	lab.Poll(tb, "the registry to answer", func() bool { status, _ := lab.Get(tb, "http://"+address+"/v2/"); return status == http.StatusOK })
	return address, d
}

// Checkout clones this repository to a directory, and commits the files of the working tree there.
func Checkout(tb testing.TB, folder string) {
	tb.Helper()
	root, err := lab.Root()
	lab.Must(tb, err)
	Run(tb, "", nil, "git", "clone", "--quiet", root, folder)
	for name := range strings.SplitSeq(strings.Trim(Run(tb, root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(folder, name)
		info, err := os.Stat(from)
		if errors.Is(err, fs.ErrNotExist) {
			err = os.RemoveAll(to) // deleted in the working tree
		} else if err == nil {
			var content []byte
			if content, err = os.ReadFile(from); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, info.Mode()))
			}
		}
		lab.Must(tb, err)
	}
	Commit(tb, folder)
}

// Commit commits all files of a folder. Each commit is a second younger than the previous one, as the versions of
// snapshots have seconds.
func Commit(tb testing.TB, folder string) {
	tb.Helper()
	var seconds int64
	if last, err := Try(tb, folder, nil, "git", "log", "-1", "--format=%ct"); err == nil {
		if seconds, err = strconv.ParseInt(strings.TrimSpace(last), 10, 64); err != nil {
			tb.Fatal(err)
		}
	}
	date := fmt.Sprintf("GIT_COMMITTER_DATE=@%d +0000", seconds+1)
	Run(tb, folder, nil, "git", "add", "--all")
	Run(tb, folder, []string{date}, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "--allow-empty", "-m", "Test")
}

// EnvoyTag is the name of Envoy's image in the registry.
func (p *Publisher) EnvoyTag() string { return p.Registry + "/envoyproxy/envoy:distroless-v1.40.0" }

// Build runs the release command in a checkout. Unless tests run at full length, it builds for this platform only.
func (p *Publisher) Build(tb testing.TB, checkout, dist string, flags ...string) {
	tb.Helper()
	lab.Must(tb, p.TryBuild(tb, checkout, dist, flags...))
}

// TryBuild is Build for a release that may be refused.
func (p *Publisher) TryBuild(tb testing.TB, checkout, dist string, flags ...string) error {
	tb.Helper()
	args := []string{"-root", checkout, "-out", dist, "-registry", p.Registry, "-url", p.Files, "-envoy", p.EnvoyTag()}
	if !lab.Long() {
		args = append(args, "-archs", runtime.GOARCH, "-platforms", runtime.GOOS+"/"+runtime.GOARCH)
	}
	_, err := Try(tb, "", nil, p.Tool("release"), append(args, flags...)...)
	return err
}

// A Krew is a directory in which krew installs the plugin from a local index.
type Krew struct {
	p           *Publisher
	index, root string
}

// NewKrew returns a directory without plugins and an empty index.
func (p *Publisher) NewKrew(tb testing.TB) *Krew {
	tb.Helper()
	k := &Krew{p: p, index: filepath.Join(tb.TempDir(), "index"), root: tb.TempDir()}
	lab.Must(tb, os.MkdirAll(filepath.Join(k.index, "plugins"), 0o755))
	Run(tb, k.index, nil, "git", "init", "--quiet")
	Commit(tb, k.index)
	k.Run(tb, "index", "add", "test", "file://"+k.index)
	return k
}

// Run runs krew.
func (k *Krew) Run(tb testing.TB, args ...string) string {
	tb.Helper()
	return Run(tb, "", []string{"KREW_ROOT=" + k.root, "KREW_NO_UPGRADE_CHECK=1"}, k.p.Tool("krew"), args...)
}

// Publish puts the krew manifest of a release into the index.
func (k *Krew) Publish(tb testing.TB, dist string) {
	tb.Helper()
	manifest, err := os.ReadFile(filepath.Join(dist, "oooi.yaml"))
	if err == nil {
		err = os.WriteFile(filepath.Join(k.index, "plugins", "oooi.yaml"), manifest, 0o600)
	}
	lab.Must(tb, err)
	Commit(tb, k.index)
	k.Run(tb, "update")
}

// Root returns the directory of krew.
func (k *Krew) Root() string { return k.root }

// Plugin returns the path of the plugin.
func (k *Krew) Plugin() string { return filepath.Join(k.root, "bin", "kubectl-oooi") }
