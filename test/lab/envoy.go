package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// EnvoyConfig is the configuration of an Envoy to start.
type EnvoyConfig struct {
	// Bootstrap is Envoy's bootstrap configuration, in YAML or JSON. The admin interface must be a Unix
	// socket; the directory of TempDir is suitable for one.
	Bootstrap []byte
	// Args are additional arguments of Envoy, such as --service-node.
	Args []string
	// Binary is the path of Envoy. The default is FindEnvoy's path.
	Binary string
	// Unready makes Start return as soon as the admin interface responds. It is for an Envoy that does not
	// become ready, or only after further actions of the caller.
	Unready bool
	// Descriptors is Envoy's limit of file descriptors; 0 for the limit of this process.
	Descriptors int
}

// An Envoy is a Daemon whose Start also waits until Envoy is ready. Its methods may be called concurrently.
type Envoy struct {
	*Daemon

	config EnvoyConfig
	admin  *http.Client
}

// NewEnvoy starts an Envoy for one test, and fails the test if Envoy does not become ready.
func NewEnvoy(tb testing.TB, config EnvoyConfig) *Envoy {
	tb.Helper()
	socket, err := adminSocket(config.Bootstrap)
	Must(tb, err)
	if config.Binary == "" {
		config.Binary, err = FindEnvoy(tb.Context(), tb.Logf)
		Must(tb, err)
	}
	dir := TempDir(tb)
	Must(tb, writeBootstrap(dir, config.Bootstrap))
	e := &Envoy{config: config, admin: socketClient(socket)}
	e.Daemon = NewDaemon(tb, "envoy", func() *exec.Cmd {
		cmd := exec.Command(config.Binary, envoyArgs(dir, config.Args)...) //nolint:noctx // its Daemon kills it
		if config.Descriptors > 0 {
			cmd = WithDescriptors(config.Descriptors, cmd)
		}
		return cmd
	})
	e.Start(tb)
	return e
}

// NewProxy is NewEnvoy with the configuration and the arguments that 'xdsd bootstrap' prints with flags.
func NewProxy(tb testing.TB, xdsd string, flags ...string) *Envoy {
	tb.Helper()
	bootstrap := func(more ...string) string {
		r := Execute(tb, time.Minute, slices.Concat([]string{xdsd, "bootstrap"}, flags, more)...)
		if r.Code != 0 {
			tb.Fatalf("xdsd bootstrap %q: exit code %d: %s", flags, r.Code, r.Stderr)
		}
		return r.Stdout
	}
	return NewEnvoy(tb, EnvoyConfig{Bootstrap: []byte(bootstrap()), Args: strings.Fields(bootstrap("--args"))})
}

// adminSocket returns the path of the admin interface's Unix socket.
func adminSocket(bootstrap []byte) (string, error) {
	var b struct {
		Admin struct {
			Address struct{ Pipe struct{ Path string } }
		}
	}
	if err := yaml.Unmarshal(bootstrap, &b); err != nil {
		return "", fmt.Errorf("reading the bootstrap configuration: %w", err)
	}
	if b.Admin.Address.Pipe.Path == "" {
		return "", errors.New("the bootstrap configuration lacks admin.address.pipe.path")
	}
	return b.Admin.Address.Pipe.Path, nil
}

// writeBootstrap writes a bootstrap configuration to the directory of an Envoy.
func writeBootstrap(dir string, bootstrap []byte) error {
	// Envoy detects the format by the file name extension. JSON is valid YAML.
	if err := os.WriteFile(filepath.Join(dir, "envoy.yaml"), bootstrap, 0o600); err != nil {
		return fmt.Errorf("writing the bootstrap configuration: %w", err)
	}
	return nil
}

// socketClient returns an HTTP client for a Unix socket. It does not keep connections alive.
func socketClient(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}
}

// envoyArgs returns the arguments that every Envoy gets here, with args. Hot restart is disabled, so that
// several Envoys can run on a host, and a killed Envoy leaves no shared memory that blocks the next one.
func envoyArgs(dir string, args []string) []string {
	const noHotRestart = "--disable-hot-restart"
	all := append([]string{"--config-path", filepath.Join(dir, "envoy.yaml")}, args...)
	if !slices.Contains(args, noHotRestart) { // Envoy rejects a repeated argument
		all = append(all, noHotRestart)
	}
	return all
}

// WithDescriptors returns cmd with a limit of open file descriptors.
func WithDescriptors(limit int, cmd *exec.Cmd) *exec.Cmd {
	args := append([]string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, limit), cmd.Path}, cmd.Args[1:]...)
	return exec.Command("sh", args...) //nolint:noctx // the caller's command also lacks a context
}

// ValidateEnvoy validates a bootstrap configuration with Envoy's mode "validate".
func ValidateEnvoy(ctx context.Context, bootstrap []byte, args ...string) error {
	binary, err := FindEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "oooi-lab-envoy-")
	if err != nil {
		return fmt.Errorf("creating a directory for Envoy: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := writeBootstrap(dir, bootstrap); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := runTool(ctx, append(append([]string{binary}, envoyArgs(dir, args)...), "--mode", "validate")...); err != nil {
		return fmt.Errorf("validating a bootstrap configuration: %w", err)
	}
	return nil
}

// Start starts Envoy, also again after Kill, and returns when it is ready.
func (e *Envoy) Start(tb testing.TB) {
	tb.Helper()
	e.Daemon.Start(tb)
	if e.config.Unready {
		e.await(tb, "the admin interface to respond", "/server_info")
		return
	}
	e.AwaitReady(tb)
}

// AwaitReady waits until Envoy's /ready returns 200.
func (e *Envoy) AwaitReady(tb testing.TB) {
	tb.Helper()
	e.await(tb, "Envoy to be ready", "/ready")
}

// await waits until a path of the admin interface returns 200. It fails when Envoy exits.
func (e *Envoy) await(tb testing.TB, what, path string) {
	tb.Helper()
	Await(tb, what, func() string {
		_, err := e.Get(tb.Context(), path)
		switch {
		case e.Exited():
			tb.Fatalf("waiting for %s: Envoy has exited", what)
		case err != nil:
			return err.Error()
		}
		return ""
	})
}

// Get requests a path of the admin interface, such as /config_dump or /clusters. A status other than 200 is
// an error.
func (e *Envoy) Get(ctx context.Context, path string) ([]byte, error) {
	return e.do(ctx, http.MethodGet, path)
}

// Post sends a command to the admin interface, such as /drain_listeners?graceful. A status other than 200 is
// an error.
func (e *Envoy) Post(ctx context.Context, path string) ([]byte, error) {
	return e.do(ctx, http.MethodPost, path)
}

func (e *Envoy) do(ctx context.Context, method, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("creating a request to Envoy: %w", err)
	}
	resp, err := e.admin.Do(req)
	if err != nil {
		return nil, fmt.Errorf("creating a request to Envoy: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading Envoy's response to %s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("requesting from Envoy: %s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(body))
	}
	return body, nil
}

// Stats returns the values of counters and gauges by name.
func (e *Envoy) Stats(ctx context.Context) (map[string]uint64, error) {
	body, err := e.Get(ctx, "/stats?format=json&type=Counters")
	if err != nil {
		return nil, err
	}
	gauges, err := e.Get(ctx, "/stats?format=json&type=Gauges")
	if err != nil {
		return nil, err
	}
	stats := map[string]uint64{}
	for _, data := range [][]byte{body, gauges} {
		var list struct {
			Stats []struct {
				Name  string
				Value uint64
			}
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("reading Envoy's stats: %w", err)
		}
		for _, s := range list.Stats {
			stats[s.Name] = s.Value
		}
	}
	return stats, nil
}

// TempDir returns a temporary directory for one test, whose path is short enough for Unix sockets. The path of
// testing.TB.TempDir contains the test's name.
func TempDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "oooi-") //nolint:usetesting // see above
	Must(tb, err)
	tb.Cleanup(func() {
		Report(tb, os.RemoveAll(dir))
	})
	return dir
}
