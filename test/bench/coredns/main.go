// Command coredns is the CoreDNS that the benchmark measures, with oooi's plugins, the stock plugins that answer the
// same kind of query, and noop, which does nothing, as a lower bound.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/k8s_external"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/pprof"
	_ "github.com/coredns/coredns/plugin/template"

	_ "github.com/densityops/oooi/plugins/hcpapps"
	_ "github.com/densityops/oooi/plugins/hcpviews"
)

// plugins are oooi's plugins in the order of corednsbuild, and noop.
var plugins = []string{"hcpviews", "hcpapps", "noop"}

func main() {
	stock := dnsserver.Directives
	if err := dnsserver.SetDirectives(slices.Insert(slices.Clone(stock), slices.Index(stock, "cache"), plugins...)); err != nil {
		fmt.Fprintln(os.Stderr, "ordering the plugins:", err)
		os.Exit(1)
	}
	coremain.Run()
}
