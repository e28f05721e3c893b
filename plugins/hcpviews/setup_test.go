package hcpviews

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/plugins/internal/viewstest"
	"github.com/densityops/oooi/test/golden"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	_ "github.com/coredns/coredns/plugin/bind" // for servers on loopback
	_ "github.com/coredns/coredns/plugin/cache"
	"github.com/coredns/coredns/plugin/ready"
	"github.com/coredns/coredns/plugin/test"

	"github.com/densityops/oooi/plugins/internal/views"
	"github.com/densityops/oooi/test/lab"
)

func TestSetup(t *testing.T) {
	c := caddy.NewTestController("dns", "hcpviews example.com {\n manifests testdata/manifests\n}")
	lab.Must(t, setup(c))
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

// TestParse covers the zones and the properties of the handler: it prints zones, TTL and zones that fall through, or the error. Tests of
// the source and of views are in plugins/internal/views.
func TestParse(t *testing.T) {
	golden.Transcript(t, "testdata/golden/blocks.txt", func(line string) []string {
		c := caddy.NewTestController("dns", viewstest.Block(line))
		c.ServerBlockKeys = []string{"dns://Example.com.:53", "dns://example.net.:53"}
		p, err := parse(c)
		if err != nil {
			return []string{err.Error()}
		}
		return []string{fmt.Sprint(p.Zones, p.TTL, p.Fall.Zones)}
	})
}

// order inserts hcpviews into the plugin order, for one test. With afterCache 0 it precedes the cache, with 1 it
// follows.
func order(t *testing.T, afterCache int) {
	t.Helper()
	stock := dnsserver.Directives
	directives := slices.Insert(slices.Clone(stock), slices.Index(stock, "cache")+afterCache, "hcpviews")
	lab.Must(t, dnsserver.SetDirectives(directives))
	t.Cleanup(func() {
		lab.Report(t, dnsserver.SetDirectives(stock))
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
				lab.Report(t, instance.Stop())
			}
			if refused := err != nil; refused != tc.refused || refused && !strings.Contains(err.Error(), "plugin/hcpviews: "+views.ErrBehindCache.Error()) {
				t.Errorf("error is %v, want ErrBehindCache: %t", err, tc.refused)
			}
		})
	}
}
