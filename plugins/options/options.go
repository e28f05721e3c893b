// Package options implements a CoreDHCP plugin that sends DHCPv4 options that no other plugin sends, and options of
// individual VMs.
package options

import (
	"fmt"
	"net"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/coredhcp/coredhcp/plugins"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/plugins/internal/option"
	"github.com/densityops/oooi/plugins/internal/vm"
)

// Plugin is the plugin's entry for CoreDHCP's registry. It must follow all other plugins that set options.
var Plugin = plugins.Plugin{Name: "options", Setup4: setup4}

func setup4(args ...string) (handler.Handler4, error) {
	set, err := option.Parse(args)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return func(req, resp *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
		return answer(set, vmOptions(req.ClientHWAddr), req, resp), false
	}, nil
}

// vmOptions returns the options of the VM with a MAC address.
func vmOptions(mac net.HardwareAddr) dhcpv4.Options {
	if d := vm.Provided(); d != nil {
		if client, ok := d.Lookup(mac); ok {
			return client.Options
		}
	}
	return nil
}

// answer adds options to a response.
func answer(set option.Set, own dhcpv4.Options, req, resp *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	if t := resp.MessageType(); t != dhcpv4.MessageTypeOffer && t != dhcpv4.MessageTypeAck {
		return resp
	}
	inform := req.MessageType() == dhcpv4.MessageTypeInform
	put := func(code uint8, value []byte) {
		// RFC 2131, section 4.3.5: the reply to an INFORM must not contain lease times.
		if code != dhcpv4.OptionRenewTimeValue.Code() && code != dhcpv4.OptionRebindingTimeValue.Code() || !inform {
			resp.Options[code] = value
		}
	}
	for code, value := range set.Options {
		if req.IsOptionRequested(dhcpv4.GenericOptionCode(code)) {
			put(code, value)
		}
	}
	for code, value := range set.Forced {
		put(code, value)
	}
	// RFC 2131, section 4.3.1: parameters specific to a client are sent without a request.
	for code, value := range own {
		put(code, value)
	}
	if b := set.BootFor(req); b != nil {
		b.Answer(req, resp)
	}
	dropLateTimes(resp)
	addDefaultRoute(resp)
	return resp
}

// dropLateTimes deletes renewal times that are not before the end of the lease, which can be shorter than the
// configured times assume.
func dropLateTimes(resp *dhcpv4.DHCPv4) {
	lease := option.Seconds(resp.Options, dhcpv4.OptionIPAddressLeaseTime)
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionRenewTimeValue, dhcpv4.OptionRebindingTimeValue} {
		if at := option.Seconds(resp.Options, code); at != 0 && lease != 0 && at >= lease {
			resp.Options.Del(code)
		}
	}
}

// addDefaultRoute adds the default route to option 121, whichever plugin set it, because clients with that option
// ignore the routers of option 3 (RFC 3442), even if they did not request it.
func addDefaultRoute(resp *dhcpv4.DHCPv4) {
	value := resp.Options.Get(dhcpv4.OptionClasslessStaticRoute)
	routers := resp.Router()
	if value == nil || len(routers) == 0 {
		return
	}
	var routes dhcpv4.Routes
	if err := routes.FromBytes(value); err != nil {
		return
	}
	for _, route := range routes {
		if ones, _ := route.Dest.Mask.Size(); ones == 0 {
			return
		}
	}
	defaultRoute := &dhcpv4.Route{Dest: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Router: routers[0]}
	resp.UpdateOption(dhcpv4.OptClasslessStaticRoute(append(routes, defaultRoute)...))
}
