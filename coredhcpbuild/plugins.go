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

// known returns the plugins of this build. It omits CoreDHCP's range, which needs cgo and is replaced by leasedb.
func known() []*plugins.Plugin {
	return []*plugins.Plugin{
		&kubevirt.Plugin, &leasedb.Plugin, &options.Plugin,
		&autoconfigure.Plugin, &dns.Plugin, &file.Plugin, &ipv6only.Plugin, &leasetime.Plugin, &mtu.Plugin, &nbp.Plugin,
		&netmask.Plugin, &router.Plugin, &searchdomains.Plugin, &serverid.Plugin, &staticroute.Plugin,
	}
}

// validate checks the arguments of a plugin whose setup has side effects. It returns false for other plugins.
func validate(name string, args []string) (validated bool, err error) {
	switch name {
	case kubevirt.Plugin.Name:
		return true, kubevirt.Check(args...)
	case leasedb.Plugin.Name:
		return true, leasedb.Check(args...)
	}
	return false, nil
}

// register registers the plugins with CoreDHCP.
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
