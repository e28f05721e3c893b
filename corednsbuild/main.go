// Command coredns is CoreDNS with the plugins of oooi and those stock ones that a
// DNS server for hosted clusters has a use for.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	"github.com/densityops/oooi/internal/neighbours"
)

func main() {
	if err := dnsserver.SetDirectives(directives(dnsserver.Directives)); err != nil {
		fmt.Fprintln(os.Stderr, "ordering the plugins:", err)
		os.Exit(1)
	}
	flag.Parse() // as Run does
	if serves() {
		settle("/proc/net/if_inet6", 5*time.Second)
		if err := neighbours.Announce(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err) // they learn it later
		}
	}
	coremain.Run()
}

// serves reports whether more is asked for than what this binary is: nobody else is to hear of that.
func serves() bool {
	for _, name := range []string{"version", "plugins"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() == "true" {
			return false
		}
	}
	return true
}
