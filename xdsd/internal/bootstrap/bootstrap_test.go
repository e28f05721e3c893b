package bootstrap_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

// baseConfig returns a Config with defaults.
func baseConfig() bootstrap.Config {
	return bootstrap.Config{
		NodeID:      "vlan50-proxy-0",
		ProxyServer: types.NamespacedName{Namespace: "infra", Name: "vlan50"},
	}
}

func addresses(texts ...string) []netip.Addr {
	var found []netip.Addr
	for _, text := range texts {
		found = append(found, netip.MustParseAddr(text))
	}
	return found
}

// goldenConfigs returns the configurations that have a golden file, by its name.
func goldenConfigs() map[string]bootstrap.Config {
	dualStack := baseConfig()
	dualStack.MetricsAddresses = addresses("10.128.0.7", "fd01::7")
	dualStack.MetricsPort = 19901
	dualStack.NodeAddresses = addresses("192.0.2.7", "10.128.0.1", "fd01::1", "10.128.0.1")
	limited := baseConfig()
	limited.ServerSocket = "/run/other/ads.sock"
	limited.AdminSocket = "/run/other/admin.sock"
	limited.MaxConnections = 1000
	limited.MaxHeapBytes, limited.MemoryBytes = 512<<20, 1<<30
	limited.PortConnections = map[uint16]uint32{443: 200, 6443: 100, 8091: 900} // more than the share of 8091
	contained := baseConfig()
	contained.MaxHeapBytes, contained.MemoryBytes = 4<<30, 1<<30
	return map[string]bootstrap.Config{
		"sidecar":    baseConfig(),
		"dual-stack": dualStack,
		"limited":    limited,
		"contained":  contained,
	}
}

func TestGolden(t *testing.T) {
	for name, config := range goldenConfigs() {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, filepath.Join("testdata", name+".yaml"), string(renderYAML(t, config)))
		})
	}
}

func renderYAML(t *testing.T, config bootstrap.Config) []byte {
	t.Helper()
	data, err := config.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRenderingIsDeterministic(t *testing.T) {
	config := goldenConfigs()["dual-stack"]
	first := renderYAML(t, config)
	for range 20 {
		if !bytes.Equal(renderYAML(t, config), first) {
			t.Fatal("renderings of the same configuration differ")
		}
	}
}

func TestEnvoyAcceptsTheGoldenFiles(t *testing.T) {
	for name := range goldenConfigs() {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if err := lab.ValidateEnvoy(t.Context(), data); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	for name, test := range map[string]struct {
		config bootstrap.Config
		want   []string
	}{
		"defaults": {baseConfig(), []string{"--disable-hot-restart"}},
		"drain time": {
			func() bootstrap.Config {
				c := baseConfig()
				c.DrainTime = 10 * time.Minute
				return c
			}(),
			[]string{"--disable-hot-restart", "--drain-time-s", "600"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.config.Args()
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if err := lab.ValidateEnvoy(t.Context(), renderYAML(t, test.config), got...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConnectionsAreLimitedByTheHeap checks that the default limit of connections follows the heap, and that an explicit one
// does not.
func TestConnectionsAreLimitedByTheHeap(t *testing.T) {
	for _, tc := range []struct {
		heap, memory uint64
		explicit     uint32
		want         int64
	}{
		{0, 0, 0, 50_000},
		{4 << 30, 0, 0, 50_000},
		{160 << 20, 0, 0, 2_560},
		{4 << 30, 1 << 30, 0, 14_745}, // 90 % of the memory
		{160 << 20, 0, 9_000, 9_000},
	} {
		config := baseConfig()
		config.MaxHeapBytes, config.MemoryBytes, config.MaxConnections = tc.heap, tc.memory, tc.explicit
		if got := maxConnections(t, config); got != tc.want {
			t.Errorf("heap %d, memory %d, limit %d: %d connections, want %d", tc.heap, tc.memory, tc.explicit, got, tc.want)
		}
	}
}

// maxConnections returns the limit of all connections.
func maxConnections(t *testing.T, config bootstrap.Config) int64 {
	t.Helper()
	var decoded struct {
		Runtime struct {
			Layers []struct {
				Static map[string]int64 `json:"static_layer"`
			} `json:"layers"`
		} `json:"layered_runtime"`
	}
	if err := yaml.Unmarshal(renderYAML(t, config), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded.Runtime.Layers[0].Static["oooi.limits.max_connections"]
}

// TestDescriptors checks that the default limit of connections leaves file descriptors for UDP sessions, and that both
// together never need more than there are.
func TestDescriptors(t *testing.T) {
	for _, tc := range []struct {
		descriptors uint64
		explicit    uint32
		connections int64
		sessions    uint32
	}{
		{0, 0, 50_000, 0},
		{1_048_576, 0, 50_000, 896_148},
		{65_536, 0, 27_034, 8_192},
		{65_536, 31_130, 31_130, 1_638}, // all that it may be
		{1_500, 0, 528, 188},
		{1_500, 600, 600, 128},
	} {
		config := baseConfig()
		config.Descriptors, config.MaxConnections = tc.descriptors, tc.explicit
		got := maxConnections(t, config)
		if got != tc.connections || config.UDPSessions() != tc.sessions {
			t.Errorf("%d descriptors and %d connections: %d connections and %d sessions, want %d and %d", tc.descriptors, tc.explicit, got, config.UDPSessions(), tc.connections, tc.sessions)
		}
	}
}
