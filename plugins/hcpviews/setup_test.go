package hcpviews

import (
	"errors"
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
}

func TestSetupErrorsNameThePlugin(t *testing.T) {
	err := setup(caddy.NewTestController("dns", "hcpviews {\n no-such-word\n}"))
	if want := "plugin/hcpviews: Testfile:2 - Error during parsing: unknown property 'no-such-word'"; err == nil || err.Error() != want {
		t.Errorf("error is %v\nwant %s", err, want)
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		input     string
		shouldErr bool
		errText   string // part of the error
		zones     []string
		ttl       uint32
		fall      []string
	}{
		{input: "hcpviews", zones: []string{"server.example."}, ttl: 30},
		{input: "hcpviews {\n}", zones: []string{"server.example."}, ttl: 30},
		{input: "hcpviews example.com", zones: []string{"example.com."}, ttl: 30},
		{input: "hcpviews Example.COM example.net. {\n}", zones: []string{"example.com.", "example.net."}, ttl: 30},
		{input: "hcpviews dns://example.com:1053", zones: []string{"example.com."}, ttl: 30},
		{input: "hcpviews .", zones: []string{"."}, ttl: 30},
		{input: "hcpviews 192.0.2.0/24", zones: []string{"2.0.192.in-addr.arpa."}, ttl: 30},
		{input: "hcpviews {\n ttl 0\n}", zones: []string{"server.example."}, ttl: 0},
		{input: "hcpviews {\n ttl 3600\n}", zones: []string{"server.example."}, ttl: 3600},
		{input: "hcpviews {\n ttl 10\n ttl 20\n}", zones: []string{"server.example."}, ttl: 20},
		{input: "hcpviews {\n fallthrough\n}", zones: []string{"server.example."}, ttl: 30, fall: []string{"."}},
		{input: "hcpviews {\n fallthrough Example.com example.net\n}", zones: []string{"server.example."}, ttl: 30, fall: []string{"example.com.", "example.net."}},
		{input: `hcpviews example.com {
			kubeconfig /etc/coredns/kubeconfig prod
			snapshot /var/lib/coredns/oooi.json
			infra clusters/blue clusters/green
			hostedcluster clusters/blue
			view vlan 192.0.2.0/24 2001:db8::/64
			view pod 10.0.0.0/8
			view lab 203.0.113.0/24
			answer lab 203.0.113.9
			answer pod service clusters/proxy
			ttl 60
			fallthrough
		}`, zones: []string{"example.com."}, ttl: 60, fall: []string{"."}},

		{input: "hcpviews {\n ttl\n}", shouldErr: true, errText: "Testfile:2 - Error during parsing: Wrong argument count or unexpected line ending after 'ttl'"},
		{input: "hcpviews {\n ttl 1 2\n}", shouldErr: true, errText: "Testfile:2 - Error during parsing: Wrong argument count"},
		{input: "hcpviews {\n ttl -1\n}", shouldErr: true, errText: `Testfile:2 - Error during parsing: ttl: "-1" is not a number of seconds from 0 to 3600`},
		{input: "hcpviews {\n ttl 3601\n}", shouldErr: true, errText: `ttl: "3601" is not a number of seconds from 0 to 3600`},
		{input: "hcpviews {\n ttl 30s\n}", shouldErr: true, errText: `ttl: "30s" is not a number of seconds from 0 to 3600`},
		{input: "hcpviews {\n ttl 99999999999999999999\n}", shouldErr: true, errText: "is not a number of seconds"},
		{input: "hcpviews {\n ttls 30\n}", shouldErr: true, errText: "Testfile:2 - Error during parsing: unknown property 'ttls'"},
		{input: "hcpviews {\n infra blue\n}", shouldErr: true, errText: `Testfile:2 - Error during parsing: infra: "blue" is not NAMESPACE/NAME`},
		{input: "hcpviews {\n view lab\n\n ttl 3\n}", shouldErr: true, errText: "Testfile:5 - Error during parsing: view lab has no addresses: add 'answer lab ADDRESS'"},
		{input: "hcpviews {\n kubeconfig a\n manifests b\n}", shouldErr: true, errText: "Testfile:4 - Error during parsing: kubeconfig and manifests are mutually exclusive"},
		{input: "hcpviews example..com", shouldErr: true, errText: `Testfile:1 - Error during parsing: "example..com" is not a zone`},
		{input: "hcpviews example.com example.net:", shouldErr: true, errText: `"example.net:" is not a zone`},
		{input: `hcpviews example.com\`, shouldErr: true, errText: `"example.com\\" is not a zone`},
		{input: "hcpviews {\n fallthrough example..com\n}", shouldErr: true, errText: `Testfile:2 - Error during parsing: "example..com" is not a zone`},
		{input: "hcpviews {\n guard\n}", shouldErr: true, errText: "Testfile:2 - Error during parsing: guard: want one or more zones"},
		{input: "hcpviews {\n guard example..com\n}", shouldErr: true, errText: `Testfile:2 - Error during parsing: guard: "example..com" is not a zone`},
		{input: "hcpviews\nhcpviews", shouldErr: true, errText: plugin.ErrOnce.Error()},
		{input: "hcpviews {\n}\nhcpviews example.com {\n}", shouldErr: true, errText: plugin.ErrOnce.Error()},
	} {
		t.Run(tc.input, func(t *testing.T) {
			c := caddy.NewTestController("dns", tc.input)
			c.ServerBlockKeys = []string{"dns://Server.example.:53"}
			p, err := parse(c)
			if tc.shouldErr {
				if err == nil || !strings.Contains(err.Error(), tc.errText) {
					t.Fatalf("error is %v\nwant one with %s", err, tc.errText)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(p.Zones, tc.zones) {
				t.Errorf("zones are %v, want %v", p.Zones, tc.zones)
			}
			if p.TTL != tc.ttl {
				t.Errorf("TTL is %d, want %d", p.TTL, tc.ttl)
			}
			if !slices.Equal(p.Fall.Zones, tc.fall) {
				t.Errorf("falls through in %v, want %v", p.Fall.Zones, tc.fall)
			}
		})
	}
}

func TestDefaultZonesAreThoseOfTheServerBlock(t *testing.T) {
	c := caddy.NewTestController("dns", "hcpviews")
	c.ServerBlockKeys = []string{"dns://example.com.:53", "dns://example.net.:53"}
	p, err := parse(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"example.com.", "example.net."}; !slices.Equal(p.Zones, want) {
		t.Errorf("zones are %v, want %v", p.Zones, want)
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
	const (
		cacheFirst = 1
		cacheLast  = 0
	)
	for _, tc := range []struct {
		name, others, properties string
		order                    int
		shouldErr                bool
	}{
		{"behind the cache, views from Infras", "cache", "", cacheFirst, true},
		{"behind the cache, views by address", "cache", "view vlan 192.0.2.0/24\n view pod 10.0.0.0/8", cacheFirst, true},
		{"behind the cache, VLANs with different answers", "cache", "view vlan", cacheFirst, true},
		{"behind the cache, one view", "cache", "view pod", cacheFirst, false},
		{"behind the cache, one custom view", "cache", "infra clusters/blue\n view lab\n answer lab 192.0.2.3", cacheFirst, false},
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
			if got := errors.Is(err, views.ErrBehindCache) || err != nil && strings.Contains(err.Error(), views.ErrBehindCache.Error()); got != tc.shouldErr {
				t.Errorf("error is %v, want ErrBehindCache: %t", err, tc.shouldErr)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "plugin/hcpviews: ") {
				t.Errorf("%v does not name the plugin", err)
			}
		})
	}
}
