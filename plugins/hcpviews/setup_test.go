package hcpviews

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	_ "github.com/coredns/coredns/plugin/bind" // for servers on loopback
	_ "github.com/coredns/coredns/plugin/cache"
	"github.com/coredns/coredns/plugin/ready"
	"github.com/coredns/coredns/plugin/test"

	"github.com/densityops/oooi/plugins/internal/views"
)

func TestSetup(t *testing.T) {
	c := caddy.NewTestController("dns", "hcpviews example.com {\n manifests testdata/manifests\n}")
	if err := setup(c); err != nil {
		t.Fatal(err)
	}
	plugins := dnsserver.GetConfig(c).Plugin
	if len(plugins) != 1 {
		t.Fatalf("%d plugins were added to the server block, want 1", len(plugins))
	}
	next := test.ErrorHandler()
	h, ok := plugins[0](next).(*HCPViews)
	if !ok || h.Next == nil || h.Name() != "hcpviews" {
		t.Errorf("the handler is %+v", h)
	}
	var _ ready.Readiness = h

	err := setup(caddy.NewTestController("dns", "hcpviews {\n no-such-word\n}"))
	if want := "plugin/hcpviews: Testfile:2 - Error during parsing: unknown property 'no-such-word'"; err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

// TestParse covers the zones and the properties of the handler. Those of the source and of views are in plugins/internal/views.
func TestParse(t *testing.T) {
	const place = "Testfile:2 - Error during parsing: "
	for _, tc := range []struct{ input, want string }{ // zones, TTL and zones that fall through, or a part of the error
		{"hcpviews", "[example.com. example.net.] 30 []"},
		{"hcpviews Example.COM example.net. {\n}", "[example.com. example.net.] 30 []"},
		{"hcpviews dns://example.com:1053", "[example.com.] 30 []"},
		{"hcpviews .", "[.] 30 []"},
		{"hcpviews 192.0.2.0/24", "[2.0.192.in-addr.arpa.] 30 []"},
		{"hcpviews . {\n ttl 0\n}", "[.] 0 []"},
		{"hcpviews . {\n ttl 10\n ttl 3600\n}", "[.] 3600 []"},
		{"hcpviews . {\n fallthrough\n}", "[.] 30 [.]"},
		{"hcpviews . {\n fallthrough Example.com example.net\n}", "[.] 30 [example.com. example.net.]"},

		{"hcpviews {\n ttl\n}", place + "Wrong argument count or unexpected line ending after 'ttl'"},
		{"hcpviews {\n ttl 1 2\n}", place + "Wrong argument count"},
		{"hcpviews {\n ttl -1\n}", place + `ttl: "-1" is not a number of seconds from 0 to 3600`},
		{"hcpviews {\n ttl 3601\n}", place + `ttl: "3601" is not a number of seconds from 0 to 3600`},
		{"hcpviews {\n ttl 30s\n}", place + `ttl: "30s" is not a number of seconds from 0 to 3600`},
		{"hcpviews {\n ttl 99999999999999999999\n}", "is not a number of seconds"},
		{"hcpviews example..com", `Testfile:1 - Error during parsing: "example..com" is not a zone`},
		{"hcpviews example.com example.net:", `"example.net:" is not a zone`},
		{`hcpviews example.com\`, `"example.com\\" is not a zone`},
		{"hcpviews {\n fallthrough example..com\n}", place + `"example..com" is not a zone`},
		{"hcpviews {\n guard\n}", place + "guard: want one or more zones"},
		{"hcpviews {\n guard example..com\n}", place + `guard: "example..com" is not a zone`},
		{"hcpviews {\n}\nhcpviews example.com {\n}", plugin.ErrOnce.Error()},
	} {
		t.Run(tc.input, func(t *testing.T) {
			c := caddy.NewTestController("dns", tc.input)
			c.ServerBlockKeys = []string{"dns://Example.com.:53", "dns://example.net.:53"}
			var got string
			if p, err := parse(c); err != nil {
				got = err.Error()
			} else {
				got = fmt.Sprint(p.Zones, p.TTL, p.Fall.Zones)
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// order inserts hcpviews into the plugin order, for one test. With afterCache 0 it precedes the cache, with 1 it
// follows.
func order(t *testing.T, afterCache int) {
	t.Helper()
	stock := dnsserver.Directives
	directives := slices.Insert(slices.Clone(stock), slices.Index(stock, "cache")+afterCache, "hcpviews")
	if err := dnsserver.SetDirectives(directives); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dnsserver.SetDirectives(stock); err != nil {
			t.Error(err)
		}
	})
}

func TestCacheMustNotPrecedeHcpviewsIfAnswersDiffer(t *testing.T) {
	dnsserver.Quiet = true
	const cacheFirst, cacheLast = 1, 0
	for _, tc := range []struct {
		name, others, properties string
		order                    int
		refused                  bool
	}{
		{"behind the cache, views from Infras", "cache", "", cacheFirst, true},
		{"behind the cache, one view", "cache", "view pod", cacheFirst, false},
		{"behind the cache, server block without cache", "", "", cacheFirst, false},
		{"before the cache", "cache", "", cacheLast, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			order(t, tc.order)
			corefile := fmt.Sprintf(".:0 {\n bind 127.0.0.1\n %s\n hcpviews {\n manifests testdata/manifests\n %s\n }\n}", tc.others, tc.properties)
			instance, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(corefile), Filepath: "Corefile", ServerTypeName: "dns"})
			if err == nil {
				instance.ShutdownCallbacks()
				if err := instance.Stop(); err != nil {
					t.Error(err)
				}
			}
			if refused := err != nil; refused != tc.refused || refused && !strings.Contains(err.Error(), "plugin/hcpviews: "+views.ErrBehindCache.Error()) {
				t.Errorf("error is %v, want ErrBehindCache: %t", err, tc.refused)
			}
		})
	}
}
