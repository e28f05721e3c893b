// Command coredns is CoreDNS with the plugins of oooi and those stock ones that a
// DNS server for hosted clusters has a use for.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	"github.com/densityops/oooi/internal/neighbours"
)

// check is -check.
var check = flag.Bool("check", false, "check the Corefile of -conf and end; nothing is started and no server asked")

func main() {
	if err := dnsserver.SetDirectives(directives(dnsserver.Directives)); err != nil {
		fmt.Fprintln(os.Stderr, "ordering the plugins:", err)
		os.Exit(1)
	}
	flag.Parse() // as Run does
	if *check {
		if err := checkCorefile(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "coredns:", err)
			os.Exit(1)
		}
		return
	}
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

// checkCorefile has every directive of the Corefile read by its plugin, with the interfaces and
// files that are here.
func checkCorefile(out io.Writer) error {
	corefile, err := caddy.LoadCaddyfile("dns")
	if err != nil {
		return fmt.Errorf("reading the Corefile: %w", err)
	}
	if err := caddy.ValidateAndExecuteDirectives(corefile, nil, true); err != nil {
		return fmt.Errorf("checking the Corefile: %w", err)
	}
	_, err = fmt.Fprintln(out, corefile.Path(), "is valid")
	return err
}
