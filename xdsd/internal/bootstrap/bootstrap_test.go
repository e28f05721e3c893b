package bootstrap_test

import (
	"net/netip"
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

// TestGolden compares configurations with golden files, several times, because parts of a Config are maps. Envoy must accept them.
func TestGolden(t *testing.T) {
	for name, config := range goldenConfigs() {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				golden.Check(t, filepath.Join("testdata", name+".yaml"), string(renderYAML(t, config)))
			}
			lab.Report(t, lab.ValidateEnvoy(t.Context(), renderYAML(t, config)))
		})
	}
}

func renderYAML(t *testing.T, config bootstrap.Config) []byte {
	t.Helper()
	data, err := config.YAML()
	lab.Must(t, err)
	return data
}

func TestArgs(t *testing.T) {
	draining := baseConfig()
	draining.DrainTime = 10 * time.Minute
	for _, test := range []struct {
		config bootstrap.Config
		want   []string
	}{
		{baseConfig(), []string{"--disable-hot-restart"}},
		{draining, []string{"--disable-hot-restart", "--drain-time-s", "600"}},
	} {
		got := test.config.Args()
		if !slices.Equal(got, test.want) {
			t.Errorf("got %q, want %q", got, test.want)
		}
		lab.Report(t, lab.ValidateEnvoy(t.Context(), renderYAML(t, test.config), got...))
	}
}

// TestConnections checks that the default limit of connections follows the heap and leaves file descriptors for UDP sessions, that
// an explicit one does not, and that connections and sessions together never need more descriptors than there are.
func TestConnections(t *testing.T) {
	for _, tc := range []struct {
		heap, memory, descriptors uint64
		explicit                  uint32
		connections               int64
		sessions                  uint32
	}{
		{0, 0, 0, 0, 50_000, 0},
		{4 << 30, 0, 0, 0, 50_000, 0},
		{160 << 20, 0, 0, 0, 2_048, 0},
		{4 << 30, 1 << 30, 0, 0, 11_796, 0}, // 90 % of the memory
		{160 << 20, 0, 0, 9_000, 9_000, 0},
		{0, 0, 1_048_576, 0, 50_000, 896_148},
		{0, 0, 65_536, 0, 27_034, 8_192},
		{0, 0, 65_536, 31_130, 31_130, 1_638}, // all that it may be
		{0, 0, 1_500, 0, 528, 188},
		{0, 0, 1_500, 600, 600, 128},
	} {
		config := baseConfig()
		config.MaxHeapBytes, config.MemoryBytes, config.Descriptors, config.MaxConnections = tc.heap, tc.memory, tc.descriptors, tc.explicit
		var decoded struct {
			Runtime struct {
				Layers []struct {
					Static map[string]int64 `json:"static_layer"`
				} `json:"layers"`
			} `json:"layered_runtime"`
		}
		lab.Must(t, yaml.Unmarshal(renderYAML(t, config), &decoded))
		connections, sessions := decoded.Runtime.Layers[0].Static["oooi.limits.max_connections"], config.UDPSessions()
		if connections != tc.connections || sessions != tc.sessions {
			t.Errorf("heap %d, memory %d, %d descriptors, limit %d: %d connections and %d sessions, want %d and %d",
				tc.heap, tc.memory, tc.descriptors, tc.explicit, connections, sessions, tc.connections, tc.sessions)
		}
	}
}
