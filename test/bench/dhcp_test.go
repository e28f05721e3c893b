package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/densityops/oooi/test/lab"
)

// The server's end of the veth is in this process's network namespace. The other end, with the relay agent's address, is in the
// clients' one.
const (
	dhcpDevice   = "vlan0"
	dhcpAddress  = "10.255.0.2"
	relayAddress = "10.255.0.3"
	// The range of addresses to lease has the maximum size of leasedb.
	dhcpNetwork, firstAddress, lastAddress = "10.0.0.0/8", "10.0.0.1", "10.15.255.255"

	// Paths of the other programs in Debian, which are not in a user's PATH.
	kea, dnsmasq = "/usr/sbin/kea-dhcp4", "/usr/sbin/dnsmasq"

	vmNamespace, vmAttachment = "clusters-bench", "clusters/vlan"
)

// A dhcpServer is one of the compared servers.
type dhcpServer struct {
	name string
	// start starts the server with an empty store in dir.
	start func(dir string) *lab.Daemon
	// new and renewals are the required ratios of the first server's rates to this server's.
	new, renewals target
}

// TestDHCP compares coredhcp with other DHCP servers: new clients and renewals per second, and CPU time for each. In each round
// every server starts with an empty store, gets new clients for a second, or all that there are, and renews their leases.
func TestDHCP(t *testing.T) {
	b := newBench(t, "DHCP", lab.Config{}, kea, dnsmasq)
	if os.Geteuid() != 0 {
		t.Skip("the servers require root")
	}
	b.dir = b.diskDir()
	b.rounds = max(1, b.rounds/6) // starts take most of the time
	slice := max(time.Second, 5*b.slice)
	clients := lab.NewNamespace(t)
	b.check(lab.Cable(
		lab.End{Device: dhcpDevice, Addresses: []string{dhcpAddress + "/8"}},
		lab.End{In: clients, Device: "relay0", Addresses: []string{relayAddress + "/8"}}))
	var relay *net.UDPConn
	b.check(clients.Do(func() (err error) {
		relay, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(relayAddress), Port: 67})
		return err
	}))
	b.Cleanup(func() { _ = relay.Close() })
	_ = relay.SetReadBuffer(4 << 20) // optional
	b.createVMs()

	servers := b.dhcpServers()
	sides := [2][]side{make([]side, len(servers)), make([]side, len(servers))}
	rounds := [2][][]sample{}
	for round := range b.rounds {
		samples := [2][]sample{make([]sample, len(servers)), make([]sample, len(servers))}
		for turn := range servers {
			i := (round + turn) % len(servers)
			s := servers[i]
			sides[0][i], sides[1][i] = side{name: s.name, target: s.new}, side{name: s.name, target: s.renewals}
			samples[0][i], samples[1][i] = b.tryDHCP(s, relay, slice)
		}
		for kind := range rounds {
			rounds[kind] = append(rounds[kind], samples[kind])
		}
	}
	for kind, what := range []string{"new clients", "renewals"} {
		b.compareRounds(what, sides[kind], rounds[kind])
	}
}

// tryDHCP starts a server with an empty store, and measures new clients and then their renewals.
func (b *bench) tryDHCP(s dhcpServer, relay *net.UDPConn, slice time.Duration) (leased, renewed sample) {
	b.Helper()
	dir, err := os.MkdirTemp(b.dir, "try")
	b.check(err)
	server := s.start(dir)
	defer func() {
		server.Kill(b)
		b.check(os.RemoveAll(dir))
	}()
	l := &dhcpLoad{relay: relay, slice: slice}
	for data := []byte{0}; data != nil; data, err = l.receive(time.Millisecond) { // replies of the server before
		b.check(err)
	}
	lab.Await(b, "an offer of "+s.name, func() string {
		if err := l.offer(); err != nil {
			return err.Error()
		}
		return ""
	})
	measured := func(packets [][]byte) sample {
		before := b.cpuTime(server.PID())
		result, err := l.run(packets)
		if err != nil {
			b.Fatalf("%s: %v\n%s", s.name, err, server.Log.Tail())
		}
		result.cpu = b.cpuTime(server.PID()) - before
		return result
	}
	leased = measured(discovers(b.machines))
	renewed = measured(l.renewals())
	b.Logf("%s: %.0f new clients/s, %.0f renewals/s; %d leases, %.1f MB of memory", s.name, leased.rate(), renewed.rate(), leased.operations,
		b.memory(server.PID()))
	return leased, renewed
}

// diskDir returns a directory on a disk: of temporary files or, if that is in memory, of this repository. It reports the time of an
// fsync, on which the rates of servers depend that write their store to the disk.
func (b *bench) diskDir() string {
	b.Helper()
	parent := os.TempDir()
	var fs unix.Statfs_t
	b.check(unix.Statfs(parent, &fs))
	if fs.Type == unix.TMPFS_MAGIC {
		root, err := lab.Root()
		b.check(err)
		parent = filepath.Join(root, ".lab")
	}
	dir, err := os.MkdirTemp(parent, "oooi-bench-")
	b.check(err)
	b.Cleanup(func() { b.check(os.RemoveAll(dir)) })
	file, err := os.Create(filepath.Join(dir, "sync"))
	b.check(err)
	defer func() { _ = file.Close() }()
	var took []time.Duration
	for range 100 {
		started := time.Now()
		_, err := file.WriteAt(make([]byte, 4096), 0)
		b.check(err)
		b.check(file.Sync())
		took = append(took, time.Since(started))
	}
	b.addFigure("median time of an fsync on the disk with the stores", milliseconds(quantile(took, 0.5)), "ms", target{})
	return dir
}

// createVMs creates a VirtualMachineInstance for each client, and one that has an address already.
func (b *bench) createVMs() {
	b.Helper()
	b.Logf("filling the API server: %d VMs", b.machines)
	b.check(b.objects.create(b.Context(), "{apiVersion: v1, kind: Namespace, metadata: {name: "+vmNamespace+"}}"))
	create := func(ctx context.Context, c dhcpClient, address string) error {
		return b.objects.create(ctx, fmt.Sprintf(`{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"worker-%d","namespace":%q},
"spec":{"networks":[{"name":"vlan","multus":{"networkName":%q}}],
"domain":{"devices":{"interfaces":[{"name":"vlan","bridge":{},"macAddress":%q}]}}},
"status":{"interfaces":[{"name":"vlan","ipAddress":%q}]}}`, int(c), vmNamespace, vmAttachment, c.mac().String(), address))
	}
	b.check(create(b.Context(), dhcpClient(b.machines), lastAddress))
	b.fill(0, b.machines, func(ctx context.Context, number int) error { return create(ctx, dhcpClient(number), "") })
}

func (b *bench) dhcpServers() []dhcpServer {
	b.Helper()
	// Debian's AppArmor profiles confine the programs by their paths, and deny access to the work folder. Copies at other paths
	// are not confined.
	peers := map[string]string{}
	for _, path := range []string{kea, dnsmasq} {
		text, err := os.ReadFile(path)
		b.check(err)
		peers[path] = filepath.Join(b.dir, filepath.Base(path))
		b.check(os.WriteFile(peers[path], text, 0o700))
	}
	file := func(dir string) string { return "store=bolt file=" + filepath.Join(dir, "leases.db") }
	coredhcpWith := func(name string, store func(dir string) string, plugins string) dhcpServer {
		return dhcpServer{name: name, start: func(dir string) *lab.Daemon {
			config := b.coredhcpConfig(dir, plugins, store(dir))
			if plugins != "" {
				// With VMs and no lease, coredhcp assumes that the file was lost, and probes each address before it offers it.
				if out, err := exec.CommandContext(b.Context(), b.program(coredhcp), "import", "--config", config, "--write").CombinedOutput(); err != nil {
					b.Fatalf("importing a lease: %v: %s", err, out)
				}
			}
			return b.start("coredhcp", b.serverCPU, b.program(coredhcp), "--config", config, "--http", "127.0.0.1:0")
		}}
	}
	inLeases := func(dir string) string {
		own := strings.ToLower(filepath.Base(dir)) // a namespace for this try, without the Leases of others
		b.check(b.objects.create(b.Context(), "{apiVersion: v1, kind: Namespace, metadata: {name: "+own+"}}"))
		return "store=kubernetes namespace=" + own + " pool=bench kubeconfig=" + b.management.Kubeconfig()
	}
	kubevirt := fmt.Sprintf("  - kubevirt: network=%s namespace=%s kubeconfig=%s\n", vmAttachment, vmNamespace, b.management.Kubeconfig())
	servers := []dhcpServer{
		coredhcpWith("coredhcp, leasedb in a file", file, ""),
		coredhcpWith("coredhcp, leasedb in Lease objects", inLeases, ""),
		coredhcpWith("coredhcp, kubevirt and leasedb in a file", file, kubevirt),
		{name: "Kea, with persistence", start: func(dir string) *lab.Daemon { return b.startKea(peers[kea], dir, true) }},
		{name: "Kea, without persistence", start: func(dir string) *lab.Daemon { return b.startKea(peers[kea], dir, false) }},
		{name: "dnsmasq", start: func(dir string) *lab.Daemon { return b.startDnsmasq(peers[dnsmasq], dir) }},
	}
	servers[1].new = target{"<=", 4} // Lease objects reach a quarter of a file
	servers[3].new = target{">", 1}
	servers[4].renewals = target{">", 1}
	return servers
}

// coredhcpConfig writes the configuration of coredhcp with leasedb and the given store, and returns its path. plugins has the
// lines of plugins before leasedb, or is empty.
func (b *bench) coredhcpConfig(dir, plugins, store string) string {
	b.Helper()
	path := filepath.Join(dir, "config.yml")
	text := "server4:\n  listen: [\"%" + dhcpDevice + "\"]\n  plugins:\n" + plugins +
		"  - leasedb: " + strings.Join([]string{store, "cidr=" + dhcpNetwork, "range=" + firstAddress + "-" + lastAddress, "server=" + dhcpAddress}, " ") + `
  - netmask: 255.0.0.0
  - router: 10.255.0.1
  - dns: 10.255.0.53
`
	b.check(os.WriteFile(path, []byte(text), 0o600))
	return path
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

func (b *bench) startKea(binary, dir string, persist bool) *lab.Daemon {
	b.Helper()
	config := filepath.Join(dir, "kea.json")
	b.check(os.WriteFile(config, fmt.Appendf(nil, keaConfig, dhcpDevice, dhcpAddress, persist, dir, dhcpNetwork, firstAddress, lastAddress), 0o600))
	return b.start("kea-dhcp4", b.serverCPU, "env", "KEA_PIDFILE_DIR="+dir, "KEA_LOCKFILE_DIR="+dir, binary, "-c", config)
}

func (b *bench) startDnsmasq(binary, dir string) *lab.Daemon {
	b.Helper()
	return b.start("dnsmasq", b.serverCPU, binary, "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--group=root",
		"--interface="+dhcpDevice, "--bind-interfaces", "--except-interface=lo", "--no-ping", "--quiet-dhcp", "--log-facility="+filepath.Join(dir, "dnsmasq.log"),
		"--pid-file="+filepath.Join(dir, "pid"), "--dhcp-leasefile="+filepath.Join(dir, "leases"), "--dhcp-lease-max=1000000",
		"--dhcp-range="+firstAddress+","+lastAddress+",255.0.0.0,1h", "--dhcp-option=option:router,10.255.0.1", "--dhcp-option=option:dns-server,10.255.0.53")
}
