package views

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
)

// parseConfig parses the properties of a block in a server block with the given root.
func parseConfig(root, properties string) (*Config, error) {
	c := caddy.NewTestController("dns", "oooi {\n"+properties+"\n}")
	dnsserver.GetConfig(c).Root = root
	h := &Handler{}
	if err := h.Parse(c, nil); err != nil {
		return nil, err
	}
	return &h.Config, nil
}

// config parses the properties of a valid block.
func config(tb testing.TB, properties string) *Config {
	tb.Helper()
	cfg, err := parseConfig("", properties)
	lab.Must(tb, err)
	return cfg
}

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func addrs(list ...string) []netip.Addr {
	var all []netip.Addr
	for _, s := range list {
		all = append(all, netip.MustParseAddr(s))
	}
	return all
}

// TestParse runs the transcript testdata/parse.txt: each line has the properties of a block, and the output is the configuration without its
// zero values, or the error. "root FOLDER" is the root directory of the blocks after it, "nothing" an empty block.
func TestParse(t *testing.T) {
	root := ""
	golden.Transcript(t, "testdata/parse.txt", func(line string) []string {
		if folder, ok := strings.CutPrefix(line, "root"); ok {
			root = strings.TrimSpace(folder)
			return nil
		}
		cfg, err := parseConfig(root, strings.ReplaceAll(strings.TrimPrefix(line, "nothing"), "; ", "\n"))
		if err != nil {
			return []string{err.Error()}
		}
		text, err := json.Marshal(cfg)
		lab.Must(t, err)
		var fields any
		lab.Must(t, json.Unmarshal(text, &fields))
		if text, err = json.Marshal(withoutZeros(fields)); err != nil {
			t.Fatal(err)
		}
		return []string{string(text), fmt.Sprintf("answers differ: %t", cfg.answersDiffer())}
	})
}

// withoutZeros returns a decoded JSON value without fields that are empty; nil if the value is empty.
func withoutZeros(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if value[name] = withoutZeros(field); value[name] == nil {
				delete(value, name)
			}
		}
		if len(value) == 0 {
			return nil
		}
	case []any:
		for i := range value {
			value[i] = withoutZeros(value[i])
		}
	case string, bool, float64:
		if value == "" || value == false || value == 0.0 {
			return nil
		}
	}
	return value
}

func TestBoundAddresses(t *testing.T) {
	for _, tc := range []struct {
		name  string
		hosts []string
		want  string
	}{
		{"unbound", []string{""}, "[]"},
		{"one of each family, once", []string{"192.0.2.2", "2001:db8::2", "192.0.2.2"}, "[192.0.2.2 2001:db8::2]"},
		{"addresses that other hosts cannot reach", []string{"127.0.0.1", "::1", "fe80::1%eth0", "0.0.0.0"}, "[]"},
	} {
		if got := fmt.Sprint(boundAddresses(tc.hosts)); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}
