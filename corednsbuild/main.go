// Command coredns is CoreDNS with the plugins of oooi and the stock plugins that are useful to a DNS server of
// hosted clusters.
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

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/neighbours"
)

// check is the flag -check.
var check = flag.Bool("check", false, "check the Corefile of -conf and exit")

// httpAddress is the flag -http.
var httpAddress = flag.String("http", "", "listen address of /healthz, /readyz, /metrics, /problems and /state; empty for none")

func main() {
	if err := dnsserver.SetDirectives(directives(dnsserver.Directives)); err != nil {
		fmt.Fprintln(os.Stderr, "coredns: ordering the plugins:", err)
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
		waitForDAD("/proc/net/if_inet6", 5*time.Second)
		if err := neighbours.Announce(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err) // not fatal: neighbour caches expire
		}
		p := newProber()
		caddy.RegisterEventHook("oooi", p.corefile.load)
		if *httpAddress != "" {
			l, err := daemon.Listen(context.Background(), *httpAddress)
			if err != nil {
				fmt.Fprintln(os.Stderr, "coredns: -http:", err)
				os.Exit(1)
			}
			go func() {
				if err := p.serve(context.Background(), l); err != nil {
					fmt.Fprintln(os.Stderr, "coredns:", err)
					os.Exit(1)
				}
			}()
		}
		go p.run(context.Background()) // until the process ends
	}
	coremain.Run()
}

// serves reports whether this process starts a server. With -version or -plugins it does not, and must not announce
// addresses.
func serves() bool {
	for _, name := range []string{"version", "plugins"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() == "true" {
			return false
		}
	}
	return true
}

// checkCorefile parses the Corefile with all plugins, without starting a server or connecting to one. It depends on
// the interfaces and files of the host.
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
