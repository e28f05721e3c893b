package bootstrap_test

import (
	"bytes"
	"maps"
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

// filesDir is where the golden files have Envoy look for its files.
const filesDir = "/etc/envoy"

func sidecar() bootstrap.Config {
	return bootstrap.Config{
		NodeID:      "vlan50-proxy-0",
		ProxyServer: types.NamespacedName{Namespace: "infra", Name: "vlan50"},
	}
}

func central(address string) bootstrap.Config {
	c := sidecar()
	c.Server = bootstrap.Server{Address: address, TLS: bootstrap.TLS{
		CertFile:   filesDir + "/tls/tls.crt",
		KeyFile:    filesDir + "/tls/tls.key",
		CAFile:     filesDir + "/tls/ca.crt",
		SecretsDir: filesDir,
	}}
	return c
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
	limited.Server.Socket = "/run/other/ads.sock"
	limited.AdminSocket = "/run/other/admin.sock"
	limited.MaxConnections = 1000
	limited.MaxHeapBytes = 512 << 20
	byIP := central("[fd02::1]:18000")
	named := central("10.96.0.10:18000")
	named.Server.TLS.ServerName = "xdsd.oooi-system.svc"
	return map[string]bootstrap.Config{
		"sidecar":      sidecar(),
		"dual-stack":   dualStack,
		"limited":      limited,
		"central":      central("xdsd.oooi-system.svc:18000"),
		"central-ip":   byIP,
		"central-name": named,
	}
}

func TestGolden(t *testing.T) {
	for name, config := range goldens() {
		t.Run(name, func(t *testing.T) {
			golden.Check(t, filepath.Join("testdata", name+".yaml"), string(yamlOf(t, config)))
			files, err := config.SecretFiles()
			if err != nil {
				t.Fatal(err)
			}
			for file, data := range files {
				golden.Check(t, filepath.Join("testdata", name, file), string(data))
			}
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
	config := central("xdsd.oooi-system.svc:18000")
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
	for name, config := range goldens() {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			newFiles(t, filepath.Join(dir, "tls")).rotate(t, lab.NewCA(t), "xdsd")
			files, err := config.SecretFiles()
			if err != nil {
				t.Fatal(err)
			}
			move := func(data []byte) []byte {
				return []byte(strings.ReplaceAll(string(data), filesDir+"/", dir+"/"))
			}
			for file, data := range files {
				if err := os.WriteFile(filepath.Join(dir, file), move(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := lab.ValidateEnvoy(t.Context(), move(data)); err != nil {
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
			func(c *bootstrap.Config) { c.Server.Socket = "ads.sock" },
			[]string{`Server.Socket: "ads.sock": must be an absolute path`},
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
		"socket and address": {
			func(c *bootstrap.Config) { *c = central("xdsd:18000"); c.Server.Socket = "/run/ads.sock" },
			[]string{"Server: has both Socket and Address"},
		},
		"address without TLS": {
			func(c *bootstrap.Config) { c.Server.Address = "xdsd:18000" },
			[]string{
				`Server.TLS.CertFile: "": must be an absolute path`, `Server.TLS.KeyFile: ""`,
				`Server.TLS.CAFile: ""`, `Server.TLS.SecretsDir: ""`,
			},
		},
		"TLS without address": {
			func(c *bootstrap.Config) { c.Server.TLS.CAFile = "/ca.crt" },
			[]string{"Server.TLS: only with Server.Address"},
		},
		"certificate and key that cannot be replaced at once": {
			func(c *bootstrap.Config) { *c = central("xdsd:18000"); c.Server.TLS.KeyFile = "/elsewhere/tls.key" },
			[]string{"Server.TLS.KeyFile: /elsewhere/tls.key: must be in the folder of CertFile"},
		},
		"address without port": {
			func(c *bootstrap.Config) { *c = central("xdsd") },
			[]string{"Server.Address: ", "missing port"},
		},
		"port 0": {
			func(c *bootstrap.Config) { *c = central("xdsd:0") },
			[]string{`Server.Address: "0" is no port number`},
		},
		"no host": {
			func(c *bootstrap.Config) { *c = central(":18000") },
			[]string{`Server.Address: ""`},
		},
		"server name that is none": {
			func(c *bootstrap.Config) { *c = central("10.0.0.1:18000"); c.Server.TLS.ServerName = "*.svc" },
			[]string{`Server.TLS.ServerName: "*.svc"`},
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
		"log level": {
			func(c *bootstrap.Config) { c.LogLevel = "verbose" },
			[]string{`LogLevel: "verbose": must be one of trace, debug, info, warning, error, critical`},
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
			_, filesErr := config.SecretFiles()
			_, argsErr := config.Args()
			for _, err := range []error{bootstrapErr, filesErr, argsErr} {
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
		"all": {
			func() bootstrap.Config {
				c := sidecar()
				c.LogLevel, c.DrainTime, c.Concurrency = "warning", 10*time.Minute, 2
				return c
			}(),
			[]string{"--disable-hot-restart", "--log-level", "warning", "--drain-time-s", "600", "--concurrency", "2"},
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

func TestSidecarNeedsNoSecretFiles(t *testing.T) {
	files, err := sidecar().SecretFiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 0 {
		t.Errorf("got %q", slices.Sorted(maps.Keys(files)))
	}
}
