package dhcp

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/densityops/oooi/test/bench/measure"
)

// A server is one of the compared servers.
type server struct {
	name  string
	stack string // the store, for the report
	// start starts the server with an empty store in dir.
	start func(ctx context.Context, dir string) (*measure.Process, error)
	// guess is the rate at which the search begins.
	guess map[kind]float64
	// clients is the number of clients that it serves; 0 if it serves all.
	clients int
	// renewing is the maximum number of clients that renew; 0 means Options.Renewing.
	renewing int
	// goal is its target, if it has one.
	goal map[kind]goal
}

// A goal is a target: a minimum rate, if it is set, and a multiple of the rate of the named server, which must be exceeded.
type goal struct {
	rate  float64
	beat  string
	times float64
}

// Names of servers that code refers to.
const (
	nameBolt      = "coredhcp, leasedb in a file"
	nameKea       = "Kea, with persistence"
	nameKeaMemory = "Kea, without persistence"
)

func (b *bench) servers() ([]server, error) {
	// Debian's AppArmor profiles confine the programs by their paths, and deny access to the work folder. Copies at
	// other paths are not confined.
	peers := map[string]string{}
	for _, path := range []string{kea, dnsmasq} {
		to := filepath.Join(b.Dir, filepath.Base(path))
		if err := copyProgram(path, to); err != nil {
			return nil, err
		}
		peers[path] = to
	}
	file := func(dir string) string { return "store=bolt file=" + filepath.Join(dir, "leases.db") }
	return []server{
		{
			name: nameBolt, stack: "fsync before the ACK", guess: map[kind]float64{newClients: 5000, renewals: 15000},
			start: func(ctx context.Context, dir string) (*measure.Process, error) {
				return startCoredhcp(ctx, dir, file(dir))
			},
			goal: map[kind]goal{newClients: {rate: 6000, beat: nameKea, times: 1}, renewals: {beat: nameKeaMemory, times: 1}},
		},
		{
			name: "coredhcp, leasedb in Lease objects", stack: "API server and etcd, which does not fsync", guess: map[kind]float64{newClients: 1000, renewals: 15000},
			start: func(ctx context.Context, dir string) (*measure.Process, error) {
				own := filepath.Base(dir) // a namespace for this try, without the Leases of others
				if err := b.Management.ApplyYAML(ctx, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+own+"}}")); err != nil {
					return nil, err
				}
				return startCoredhcp(ctx, dir, "store=kubernetes namespace="+own+" pool=bench kubeconfig="+b.Management.Kubeconfig())
			},
			goal: map[kind]goal{newClients: {rate: 1000, beat: nameBolt, times: 0.25}, renewals: {beat: nameKeaMemory, times: 1}},
		},
		{
			name: "coredhcp, kubevirt and leasedb in a file", stack: fmt.Sprintf("%d VMs; fsync before the ACK", b.Machines), guess: map[kind]float64{newClients: 5000, renewals: 15000},
			start: func(ctx context.Context, dir string) (*measure.Process, error) {
				kubevirt := fmt.Sprintf("  - kubevirt: network=%s namespace=%s kubeconfig=%s\n", attachment, namespace, b.Management.Kubeconfig())
				config, err := configure(dir, kubevirt, file(dir))
				if err != nil {
					return nil, err
				}
				// With VMs and no lease, coredhcp assumes that the file was lost, and probes each address before it offers it.
				if out, err := exec.CommandContext(ctx, measure.Binary(), "import", "--config", config, "--write").CombinedOutput(); err != nil {
					return nil, fmt.Errorf("importing a lease: %w: %s", err, out)
				}
				return runCoredhcp(ctx, dir, config)
			},
			clients: b.Machines, renewing: b.Machines,
			goal: map[kind]goal{newClients: {rate: 6000}, renewals: {beat: nameKeaMemory, times: 1}},
		},
		{
			name: nameKea, stack: "memfile, persist", guess: map[kind]float64{newClients: 4000, renewals: 8000},
			start: func(ctx context.Context, dir string) (*measure.Process, error) {
				return startKea(ctx, peers[kea], dir, true)
			},
		},
		{
			name: nameKeaMemory, stack: "memfile, no persist", guess: map[kind]float64{newClients: 7000, renewals: 12000},
			start: func(ctx context.Context, dir string) (*measure.Process, error) {
				return startKea(ctx, peers[kea], dir, false)
			},
		},
		{
			name: "dnsmasq", stack: "lease file, --no-ping", guess: map[kind]float64{newClients: 300, renewals: 1000}, renewing: 300,
			start: func(ctx context.Context, dir string) (*measure.Process, error) {
				return startDnsmasq(ctx, peers[dnsmasq], dir)
			},
		},
	}, nil
}

// run starts a server in its folder, which also gets its log.
func run(ctx context.Context, name, dir string, env []string, command string, args ...string) (*measure.Process, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	return measure.Start(name, filepath.Join(dir, "log"), cmd)
}

// startCoredhcp starts coredhcp with leasedb and the given store.
func startCoredhcp(ctx context.Context, dir, store string) (*measure.Process, error) {
	config, err := configure(dir, "", store)
	if err != nil {
		return nil, err
	}
	return runCoredhcp(ctx, dir, config)
}

// configure writes the configuration of coredhcp with leasedb and the given store, and returns its path. plugins has the lines
// of plugins before leasedb, or is empty.
func configure(dir, plugins, store string) (path string, err error) {
	path = filepath.Join(dir, "config.yml")
	text := "server4:\n  listen: [\"%" + device + "\"]\n  plugins:\n" + plugins +
		"  - leasedb: " + strings.Join([]string{store, "cidr=" + network, "range=" + firstAddress + "-" + lastAddress, "server=" + serverAddress}, " ") + `
  - netmask: 255.0.0.0
  - router: 10.255.0.1
  - dns: 10.255.0.53
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("writing coredhcp's configuration: %w", err)
	}
	return path, nil
}

func runCoredhcp(ctx context.Context, dir, config string) (*measure.Process, error) {
	return run(ctx, "coredhcp", dir, nil, measure.Binary(), "--config", config, "--http", "127.0.0.1:0")
}

const keaConfig = `{"Dhcp4": {
	"interfaces-config": {"interfaces": ["%[1]s/%[2]s"], "dhcp-socket-type": "udp"},
	"lease-database": {"type": "memfile", "persist": %[3]t, "name": "%[4]s/leases.csv"},
	"valid-lifetime": 3600,
	"subnet4": [{"subnet": %[5]q, "pools": [{"pool": "%[6]s-%[7]s"}], "option-data": [
		{"name": "routers", "data": "10.255.0.1"}, {"name": "domain-name-servers", "data": "10.255.0.53"}]}],
	"loggers": [{"name": "kea-dhcp4", "severity": "ERROR", "output_options": [{"output": "stderr"}]}]
}}
`

func startKea(ctx context.Context, binary, dir string, persist bool) (*measure.Process, error) {
	config := filepath.Join(dir, "kea.json")
	text := fmt.Sprintf(keaConfig, device, serverAddress, persist, dir, network, firstAddress, lastAddress)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing Kea's configuration: %w", err)
	}
	return run(ctx, "kea-dhcp4", dir, []string{"KEA_PIDFILE_DIR=" + dir, "KEA_LOCKFILE_DIR=" + dir}, binary, "-c", config)
}

func startDnsmasq(ctx context.Context, binary, dir string) (*measure.Process, error) {
	return run(ctx, "dnsmasq", dir, nil, binary, "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--group=root",
		"--interface="+device, "--bind-interfaces", "--except-interface=lo", "--no-ping", "--quiet-dhcp", "--log-facility="+filepath.Join(dir, "dnsmasq.log"),
		"--pid-file="+filepath.Join(dir, "pid"), "--dhcp-leasefile="+filepath.Join(dir, "leases"), "--dhcp-lease-max=1000000",
		"--dhcp-range="+firstAddress+","+lastAddress+",255.0.0.0,1h", "--dhcp-option=option:router,10.255.0.1", "--dhcp-option=option:dns-server,10.255.0.53")
}

func copyProgram(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copying a program: %w", err)
	}
	defer func() { _ = source.Close() }() // opened for reading only
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
	if err != nil {
		return fmt.Errorf("copying a program: %w", err)
	}
	if _, err = io.Copy(target, source); err != nil {
		err = fmt.Errorf("copying %s: %w", from, err)
	}
	if closed := target.Close(); err == nil {
		err = closed
	}
	return err
}
