// Command coredns is CoreDNS with the plugins of oooi and those stock ones that a
// DNS server for hosted clusters has a use for.
package main

import (
	"fmt"
	"os"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
)

func main() {
	if err := dnsserver.SetDirectives(directives(dnsserver.Directives)); err != nil {
		fmt.Fprintln(os.Stderr, "ordering the plugins:", err)
		os.Exit(1)
	}
	coremain.Run()
}
