package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// TestCheckResolvers checks resolvers of which one refuses each query, which is an answer, and one is silent.
func TestCheckResolvers(t *testing.T) {
	silent, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	lab.Must(t, err)
	answering := lab.ServeDNS(t, "127.0.0.1:0", func(w dns.ResponseWriter, q *dns.Msg) {
		_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) // the client retries
	})
	t.Cleanup(func() { _ = silent.Close() })
	if out, err := run(t.Context(), "check", "--resolver", answering); err != nil {
		t.Errorf("a resolver that answers: %v %s", err, out)
	}
	both := answering + "," + silent.LocalAddr().String()
	_, err = run(t.Context(), "check", "--resolver", both)
	if err == nil || strings.Count(err.Error(), "does not answer") != 1 || !strings.Contains(err.Error(), "upstream resolver "+silent.LocalAddr().String()+" does not answer: ") {
		t.Errorf("a silent resolver: %v", err)
	}
}

// TestCheckEnvoy checks the version of an Envoy that runs with the configuration and arguments of xdsd bootstrap. The check stops it.
func TestCheckEnvoy(t *testing.T) {
	for _, tc := range []struct{ oldest, want string }{{"1.31", ""}, {"99.0", "the image has Envoy 1."}} {
		dir := lab.TempDir(t)
		socket := filepath.Join(dir, "admin.sock")
		bootstrap := func(more ...string) string {
			t.Helper()
			out, err := run(t.Context(), append([]string{"bootstrap", "--proxy-server", "clusters/demo", "--node-id", "demo-proxy-0", "--metrics-address", "127.31.0.1",
				"--socket", filepath.Join(dir, "ads.sock"), "--admin-socket", socket}, more...)...)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return out
		}
		file := filepath.Join(dir, "envoy.yaml")
		bootstrap("--file", file)
		config, err := os.ReadFile(file)
		lab.Must(t, err)
		if text := bootstrap(); text != string(config) {
			t.Errorf("without --file, the configuration is another one:\n%s", text)
		}
		envoy := lab.NewEnvoy(t, lab.EnvoyConfig{Bootstrap: config, Args: append(strings.Fields(bootstrap("--args")), "--concurrency", "1"), Unready: true})
		_, err = run(t.Context(), "check", "--min-envoy", tc.oldest, "--admin-socket", socket)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("--min-envoy %s: %v, want %q", tc.oldest, err, tc.want)
		}
		envoy.AwaitEnd(t)
	}
}

func TestOldVersions(t *testing.T) {
	for _, tc := range []struct {
		is, oldest string
		want       bool
	}{{"1.31.0", "1.31", false}, {"1.30.12", "1.31", true}, {"1.100.0-dev", "1.31", false}, {"2.0.0", "1.31", false}, {"unknown", "1.31", true}} {
		if got := isOlder(tc.is, tc.oldest); got != tc.want {
			t.Errorf("isOlder(%q, %q) = %t, want %t", tc.is, tc.oldest, got, tc.want)
		}
	}
}
