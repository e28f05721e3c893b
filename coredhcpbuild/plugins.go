package main

import (
	"fmt"

	"github.com/coredhcp/coredhcp/plugins"
	"github.com/coredhcp/coredhcp/plugins/autoconfigure"
	"github.com/coredhcp/coredhcp/plugins/dns"
	"github.com/coredhcp/coredhcp/plugins/file"
	"github.com/coredhcp/coredhcp/plugins/ipv6only"
	"github.com/coredhcp/coredhcp/plugins/leasetime"
	"github.com/coredhcp/coredhcp/plugins/mtu"
	"github.com/coredhcp/coredhcp/plugins/nbp"
	"github.com/coredhcp/coredhcp/plugins/netmask"
	"github.com/coredhcp/coredhcp/plugins/router"
	"github.com/coredhcp/coredhcp/plugins/searchdomains"
	"github.com/coredhcp/coredhcp/plugins/serverid"
	"github.com/coredhcp/coredhcp/plugins/staticroute"

	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
	"github.com/densityops/oooi/plugins/options"
)

// known are the plugins of this build. CoreDHCP's range is not among them: it needs cgo, and
// leasedb does what it does.
func known() []*plugins.Plugin {
	return []*plugins.Plugin{
		&kubevirt.Plugin, &leasedb.Plugin, &options.Plugin,
		&autoconfigure.Plugin, &dns.Plugin, &file.Plugin, &ipv6only.Plugin, &leasetime.Plugin, &mtu.Plugin, &nbp.Plugin,
		&netmask.Plugin, &router.Plugin, &searchdomains.Plugin, &serverid.Plugin, &staticroute.Plugin,
	}
}

// inspect checks a plugin's arguments where its set-up would do more than look at them.
func inspect(name string, args []string) (does bool, err error) {
	switch name {
	case kubevirt.Plugin.Name:
		return true, kubevirt.Check(args...)
	case leasedb.Plugin.Name:
		return true, leasedb.Check(args...)
	}
	return false, nil
}

// register makes the plugins known to CoreDHCP, which keeps them for the process.
func register() error {
	for _, p := range known() {
		if plugins.RegisteredPlugins[p.Name] != nil {
			continue
		}
		if err := plugins.RegisterPlugin(p); err != nil {
			return fmt.Errorf("registering the plugin %s: %w", p.Name, err)
		}
	}
	return nil
}
