package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coredhcp/coredhcp/config"
	"github.com/coredhcp/coredhcp/server"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
	"github.com/densityops/oooi/test/lab"
)

const (
	// unreachable is a kubeconfig of an API server that cannot be reached.
	unreachable = `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: a, user: {}}]}`
	// snapshot is a snapshot file of kubevirt.
	snapshot = `{"version": 1, "written": "2026-01-01T00:00:00Z", "scope": "network clusters/vlan", "instances": [
{"namespace": "clusters-demo", "name": "worker", "uid": "", "created": null, "hostname": "worker", "interfaces": [{"name": "vlan", "mac": "02:00:00:00:00:01"}]}]}`
)

// TestPluginsRunInAStockCoreDHCP serves with CoreDHCP's own server, through a relay agent.
func TestPluginsRunInAStockCoreDHCP(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"kubeconfig": unreachable, "machines": snapshot, "leases": "02:00:00:00:00:01 127.0.0.101\n"} {
		lab.WriteFile(t, text, dir, name)
	}
	for _, tc := range []struct {
		name     string
		plugins  []string
		hostname string
	}{
		{"an ordinary lease", []string{
			"leasedb store=bolt file=DIR/leases.db cidr=127.0.0.0/24 range=127.0.0.100-127.0.0.199 server=127.0.0.1 lease=1h",
			"options force=224:string:site",
		}, ""},
		{"a VM", []string{
			"kubevirt network=clusters/vlan kubeconfig=DIR/kubeconfig snapshot=DIR/machines",
			"options force=224:string:site",
			"file DIR/leases",
		}, "worker"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			at := startStock(t, strings.ReplaceAll(strings.Join(tc.plugins, "\n"), "DIR", dir))
			offer := discoverThroughRelay(t, at)
			if offer.MessageType() != dhcpv4.MessageTypeOffer || offer.YourIPAddr.To4()[3] < 100 || offer.HostName() != tc.hostname ||
				string(offer.GetOneOption(dhcpv4.GenericOptionCode(224))) != "site" {
				t.Errorf("the offer is %s", offer.Summary())
			}
		})
	}
}

// TestBuildInTheDocumentation builds the program in docs/how-to/plugins.md, with the versions of this module, and runs it.
func TestBuildInTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../docs/how-to/plugins.md")
	lab.Must(t, err)
	blocks := regexp.MustCompile("(?ms)^   ```go\n(.*?)^   ```$").FindAllSubmatch(text, -1)
	if len(blocks) < 2 {
		t.Fatalf("found %d blocks of Go", len(blocks))
	}
	dir := t.TempDir()
	lab.WriteFile(t, string(blocks[1][1]), dir, "documented-dhcp.go")
	program, err := lab.BuildStatic(t.Context(), filepath.Join(dir, "documented-dhcp.go"))
	lab.Must(t, err)
	// Without a network that it may listen on, the program must get as far as the arguments of the plugins.
	lab.WriteFile(t, "server4:\n  plugins:\n  - kubevirt: network=clusters/vlan100 nonsense=1\n", dir, "config.yml")
	out, err := exec.CommandContext(t.Context(), program, filepath.Join(dir, "config.yml")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "nonsense") {
		t.Errorf("the output is %s", out)
	}
}

// startStock starts CoreDHCP's server with plugins, one a line, and returns its address.
func startStock(t *testing.T, plugins string) *net.UDPAddr {
	t.Helper()
	lab.Must(t, register())
	free, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	lab.Must(t, err)
	address, ok := free.LocalAddr().(*net.UDPAddr)
	if err := free.Close(); err != nil || !ok {
		t.Fatal(err)
	}
	c := &config.ServerConfig{Addresses: []net.UDPAddr{*address}}
	for line := range strings.SplitSeq(plugins, "\n") {
		words := strings.Fields(line)
		c.Plugins = append(c.Plugins, config.PluginConfig{Name: words[0], Args: words[1:]})
	}
	srv, err := server.Start(&config.Config{Server4: c})
	lab.Must(t, err)
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Wait() }()
	t.Cleanup(func() {
		srv.Close()
		lab.Report(t, <-stopped)
		lab.Report(t, shutdown(t.Context()))
		if kubevirt.Status() != nil || len(leasedb.Status()) > 0 {
			t.Error("plugins remain after the shutdown")
		}
	})
	return address
}

// discoverThroughRelay sends a DISCOVER as a relay agent and returns the reply. A relay agent is the only client
// that has an address and so works on loopback.
func discoverThroughRelay(t *testing.T, server *net.UDPAddr) *dhcpv4.DHCPv4 {
	t.Helper()
	agent := net.IPv4(127, 0, 0, 7)
	conn, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", fmt.Sprintf("%s:%d", agent, dhcpv4.ServerPort))
	if err != nil && os.Getenv("CI") == "" {
		t.Skipf("%s needs root, for the port of relay agents: %v", t.Name(), err)
	}
	lab.Must(t, err)
	defer func() { _ = conn.Close() }()
	req, err := dhcpv4.NewDiscovery(net.HardwareAddr{2, 0, 0, 0, 0, 1}, dhcpv4.WithGatewayIP(agent))
	lab.Must(t, err)
	buffer := make([]byte, 2048)
	for start := time.Now(); time.Since(start) < 30*time.Second; {
		if _, err := conn.WriteTo(req.ToBytes(), server); err != nil {
			t.Fatal(err)
		}
		lab.Must(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
		if n, _, err := conn.ReadFrom(buffer); err == nil {
			answer, err := dhcpv4.FromBytes(buffer[:n])
			lab.Must(t, err)
			return answer
		}
	}
	t.Fatal("no reply")
	return nil
}
