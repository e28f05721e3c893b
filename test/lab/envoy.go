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
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// EnvoyConfig is the configuration of an Envoy to start.
type EnvoyConfig struct {
	// Bootstrap is Envoy's bootstrap configuration, in YAML or JSON. The admin interface must be a Unix
	// socket; the folder of TempDir is suitable for one.
	Bootstrap []byte
	// Args are additional arguments of Envoy, such as --service-node.
	Args []string
	// Binary is the path of Envoy. The default is that of FindEnvoy.
	Binary string
	// Unready makes Start return as soon as the admin interface responds. It is for an Envoy that does not
	// become ready, or only after further actions of the caller.
	Unready bool
	// Descriptors is Envoy's limit of file descriptors; 0 for the limit of this process.
	Descriptors int
	// Logf reports progress. The default writes to standard error.
	Logf Logf
}

// An Envoy is a running Envoy. Its methods may be called concurrently.
type Envoy struct {
	config   EnvoyConfig
	dir      string // has envoy.yaml and envoy.log
	admin    *http.Client
	launcher *launcher

	mu      sync.Mutex // guards the fields below
	process *process
	stopped bool
}

// NewEnvoy starts an Envoy for one test, and fails the test if Envoy does not become ready. Envoy stops when
// the test ends; if the test failed, the end of Envoy's log is printed.
func NewEnvoy(tb testing.TB, config EnvoyConfig) *Envoy {
	tb.Helper()
	if config.Logf == nil {
		config.Logf = tb.Logf
	}
	socket, err := adminSocket(config.Bootstrap)
	Must(tb, err)
	if config.Binary == "" {
		config.Binary, err = FindEnvoy(tb.Context(), config.Logf)
		Must(tb, err)
	}
	dir, err := writeBootstrap(config.Bootstrap)
	Must(tb, err)
	e := &Envoy{config: config, dir: dir, admin: socketClient(socket), launcher: newLauncher()}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Log(e.Logs())
		}
		Report(tb, e.Stop())
	})
	Must(tb, e.Start(tb.Context()))
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
		return "", errors.New("the bootstrap configuration has no admin.address.pipe.path")
	}
	return b.Admin.Address.Pipe.Path, nil
}

// writeBootstrap writes a bootstrap configuration to a new temporary folder.
func writeBootstrap(bootstrap []byte) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "oooi-lab-envoy-"); err != nil {
		return "", fmt.Errorf("creating a folder for Envoy: %w", err)
	}
	// Envoy detects the format by the file name extension. JSON is valid YAML.
	if err := os.WriteFile(filepath.Join(dir, "envoy.yaml"), bootstrap, 0o600); err != nil {
		return "", fmt.Errorf("writing the bootstrap configuration: %w", errors.Join(err, os.RemoveAll(dir)))
	}
	return dir, nil
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
	return exec.Command("sh", args...) //nolint:noctx // the caller's command has no context either
}

// ValidateEnvoy validates a bootstrap configuration with Envoy's mode "validate".
func ValidateEnvoy(ctx context.Context, bootstrap []byte, args ...string) error {
	binary, err := FindEnvoy(ctx, nil)
	if err != nil {
		return err
	}
	dir, err := writeBootstrap(bootstrap)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := run(ctx, binary, append(envoyArgs(dir, args), "--mode", "validate")...); err != nil {
		return fmt.Errorf("validating a bootstrap configuration: %w", err)
	}
	return nil
}

// Start starts Envoy again after Kill, with the same configuration, and returns
// when it is ready.
func (e *Envoy) Start(ctx context.Context) error {
	if err := e.launch(); err != nil {
		return err
	}
	if e.config.Unready {
		return e.await(ctx, "the admin interface to respond", func(ctx context.Context) error {
			_, err := e.Get(ctx, "/server_info")
			return err
		})
	}
	return e.Ready(ctx)
}

func (e *Envoy) launch() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return errors.New("Envoy was stopped")
	}
	if e.process.running() {
		return errors.New("Envoy is running already")
	}
	cmd := exec.Command(e.config.Binary, envoyArgs(e.dir, e.config.Args)...) //nolint:noctx // the process outlives contexts
	cmd.Args[0] = "envoy"
	if e.config.Descriptors > 0 {
		cmd = WithDescriptors(e.config.Descriptors, cmd)
	}
	var err error
	e.process, err = e.launcher.start(cmd, filepath.Join(e.dir, "envoy.log"))
	return err
}

// Ready waits until Envoy's /ready returns 200.
func (e *Envoy) Ready(ctx context.Context) error {
	return e.await(ctx, "Envoy to be ready", func(ctx context.Context) error {
		_, err := e.Get(ctx, "/ready")
		return err
	})
}

// await calls try until it succeeds. It fails when Envoy exits, or after startTimeout.
func (e *Envoy) await(ctx context.Context, what string, try func(context.Context) error) error {
	failure := func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		return firstFailure([]*process{e.process})
	}
	return await(ctx, what, failure, e.Logs, try)
}

// Kill sends SIGKILL to Envoy and waits until it has ended.
func (e *Envoy) Kill() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.process.kill()
}

// Stop kills Envoy, waits until it has ended and removes its folder. Further calls do nothing.
func (e *Envoy) Stop() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil
	}
	e.stopped = true
	err := e.process.kill()
	e.launcher.close()
	return errors.Join(err, os.RemoveAll(e.dir))
}

// PID returns the process ID of Envoy, or 0 if it does not run.
func (e *Envoy) PID() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.process.running() {
		return 0
	}
	return e.process.cmd.Process.Pid
}

// Logs returns the last lines of Envoy's log since its last start.
func (e *Envoy) Logs() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.process == nil {
		return ""
	}
	return "== envoy\n" + e.process.logTail() + "\n"
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
		return nil, fmt.Errorf("requesting from Envoy: %w", err)
	}
	resp, err := e.admin.Do(req)
	if err != nil {
		return nil, fmt.Errorf("requesting from Envoy: %w", err)
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

// Listeners returns the addresses of each listener by name, with the port that was assigned if the configured
// one is 0.
func (e *Envoy) Listeners(ctx context.Context) (map[string][]netip.AddrPort, error) {
	body, err := e.Get(ctx, "/listeners?format=json")
	if err != nil {
		return nil, err
	}
	type address struct {
		Socket struct {
			Address string `json:"address"`
			Port    uint16 `json:"port_value"`
		} `json:"socket_address"`
	}
	var list struct {
		Statuses []struct {
			Name       string    `json:"name"`
			Local      address   `json:"local_address"`
			Additional []address `json:"additional_local_addresses"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("reading Envoy's listeners: %w", err)
	}
	listeners := map[string][]netip.AddrPort{}
	for _, l := range list.Statuses {
		for _, a := range append([]address{l.Local}, l.Additional...) {
			ip, err := netip.ParseAddr(a.Socket.Address)
			if err != nil {
				return nil, fmt.Errorf("reading Envoy's listener %s: %w", l.Name, err)
			}
			listeners[l.Name] = append(listeners[l.Name], netip.AddrPortFrom(ip, a.Socket.Port))
		}
	}
	return listeners, nil
}

// TempDir returns a temporary folder for one test, whose path is short enough for Unix sockets. The path of
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
