package bootstrap_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
)

func sidecar() bootstrap.Config {
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

// goldens are the configurations with a golden file, by its name.
func goldens() map[string]bootstrap.Config {
	dualStack := sidecar()
	dualStack.MetricsAddresses = addresses("10.128.0.7", "fd01::7")
	dualStack.MetricsPort = 19901
	limited := sidecar()
	limited.ServerSocket = "/run/other/ads.sock"
	limited.AdminSocket = "/run/other/admin.sock"
	limited.MaxConnections = 1000
	limited.MaxHeapBytes = 512 << 20
	return map[string]bootstrap.Config{
		"sidecar":    sidecar(),
		"dual-stack": dualStack,
		"limited":    limited,
	}
}

func TestGolden(t *testing.T) {
	for name, config := range goldens() {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, filepath.Join("testdata", name+".yaml"), string(yamlOf(t, config)))
		})
	}
}

func yamlOf(t *testing.T, config bootstrap.Config) []byte {
	t.Helper()
	b, err := config.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	data, err := bootstrap.YAML(b)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRenderingIsTheSameEveryTime(t *testing.T) {
	config := goldens()["dual-stack"]
	first := yamlOf(t, config)
	var firstJSON []byte
	for range 20 {
		b, err := config.Bootstrap()
		if err != nil {
			t.Fatal(err)
		}
		data, err := bootstrap.JSON(b)
		if err != nil {
			t.Fatal(err)
		}
		if firstJSON == nil {
			firstJSON = data
		}
		if !bytes.Equal(data, firstJSON) || !bytes.Equal(yamlOf(t, config), first) {
			t.Fatal("it varies")
		}
	}
	back, err := yaml.JSONToYAML(firstJSON)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(back)); diff != "" {
		t.Errorf("JSON says otherwise than YAML (-yaml +json)\n%s", diff)
	}
}

func TestEnvoyTakesTheGoldenFiles(t *testing.T) {
	for name := range goldens() {
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

func TestBadConfig(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*bootstrap.Config)
		want   []string
	}{
		"nothing given": {
			func(c *bootstrap.Config) { *c = bootstrap.Config{} },
			[]string{"NodeID: required", "ProxyServer.Namespace: \"\"", "ProxyServer.Name: \"\""},
		},
		"names that are none": {
			func(c *bootstrap.Config) { c.ProxyServer = types.NamespacedName{Namespace: "a.b", Name: "c/d"} },
			[]string{`ProxyServer.Namespace: "a.b"`, `ProxyServer.Name: "c/d"`},
		},
		"relative socket": {
			func(c *bootstrap.Config) { c.ServerSocket = "ads.sock" },
			[]string{`ServerSocket: "ads.sock": must be an absolute path`},
		},
		"abstract socket, which everyone may open": {
			func(c *bootstrap.Config) { c.AdminSocket = "@admin" },
			[]string{`AdminSocket: "@admin": must be an absolute path`},
		},
		"socket with too long a path": {
			func(c *bootstrap.Config) { c.AdminSocket = "/" + strings.Repeat("x", 107) },
			[]string{"AdminSocket: /xxx", "longer than 107 bytes"},
		},
		"one socket for two": {
			func(c *bootstrap.Config) { c.AdminSocket = bootstrap.DefaultServerSocket },
			[]string{"AdminSocket: /run/xdsd/ads.sock is xdsd's"},
		},
		"metrics at addresses that are none": {
			func(c *bootstrap.Config) {
				c.MetricsAddresses = append(addresses("fe80::1%eth0", "::ffff:10.0.0.1", "224.0.0.1", "10.0.0.1", "10.0.0.1"), netip.Addr{})
			},
			[]string{
				"MetricsAddresses[0]: fe80::1%eth0: neither zone", "MetricsAddresses[1]: ::ffff:10.0.0.1", "MetricsAddresses[2]: 224.0.0.1",
				"MetricsAddresses[4]: 10.0.0.1 is there twice", "MetricsAddresses[5]: no address",
			},
		},
		"drain time": {
			func(c *bootstrap.Config) { c.DrainTime = 1500 * time.Millisecond },
			[]string{"DrainTime: 1.5s: must be whole seconds"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := sidecar()
			test.change(&config)
			_, bootstrapErr := config.Bootstrap()
			_, argsErr := config.Args()
			for _, err := range []error{bootstrapErr, argsErr} {
				if err == nil {
					t.Fatal("no error")
				}
				for _, want := range test.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("no %q in error: %v", want, err)
					}
				}
			}
		})
	}
}

func TestArgs(t *testing.T) {
	for name, test := range map[string]struct {
		config bootstrap.Config
		want   []string
	}{
		"only what is always right": {sidecar(), []string{"--disable-hot-restart"}},
		"drain time": {
			func() bootstrap.Config {
				c := sidecar()
				c.DrainTime = 10 * time.Minute
				return c
			}(),
			[]string{"--disable-hot-restart", "--drain-time-s", "600"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.config.Args()
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if err := lab.ValidateEnvoy(t.Context(), yamlOf(t, test.config), got...); err != nil {
				t.Error(err)
			}
		})
	}
}
