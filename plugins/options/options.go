// Package options is a CoreDHCP plugin that answers options which no other plugin knows,
// and those that one machine has of its own.
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

// Plugin is for CoreDHCP's registry. It belongs behind every plugin that sets options.
var Plugin = plugins.Plugin{Name: "options", Setup4: setup4}

func setup4(args ...string) (handler.Handler4, error) {
	set, err := option.Parse(args)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return func(req, resp *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
		return answer(set, own(req.ClientHWAddr), req, resp), false
	}, nil
}

// own returns the options that a client has of its own.
func own(mac net.HardwareAddr) dhcpv4.Options {
	if d := vm.Provided(); d != nil {
		if client, ok := d.Lookup(mac); ok {
			return client.Options
		}
	}
	return nil
}

// answer puts options into a response.
func answer(set option.Set, own dhcpv4.Options, req, resp *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	if t := resp.MessageType(); t != dhcpv4.MessageTypeOffer && t != dhcpv4.MessageTypeAck {
		return resp
	}
	inform := req.MessageType() == dhcpv4.MessageTypeInform
	put := func(code uint8, value []byte) {
		// RFC 2131, section 4.3.5: an answer to an INFORM has no times of a lease.
		if code != t1.Code() && code != t2.Code() || !inform {
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
	// RFC 2131, section 4.3.1: what is specific to a client is answered unasked.
	for code, value := range own {
		put(code, value)
	}
	if b := set.BootFor(req); b != nil {
		b.Answer(req, resp)
	}
	keepTimes(resp)
	addDefaultRoute(req, resp)
	return resp
}

const (
	t1 = dhcpv4.GenericOptionCode(58)
	t2 = dhcpv4.GenericOptionCode(59)
)

// keepTimes drops times of renewal that are not before the end of the lease: a lease can be
// shorter than what the times were written for.
func keepTimes(resp *dhcpv4.DHCPv4) {
	lease := option.Seconds(resp.Options, dhcpv4.OptionIPAddressLeaseTime)
	for _, code := range []dhcpv4.OptionCode{t1, t2} {
		if at := option.Seconds(resp.Options, code); at != 0 && lease != 0 && at >= lease {
			resp.Options.Del(code)
		}
	}
}

// addDefaultRoute adds the default route to those of option 121, whoever has set them:
// clients that see it ignore the routers of option 3 (RFC 3442).
func addDefaultRoute(req, resp *dhcpv4.DHCPv4) {
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
	if !req.IsOptionRequested(dhcpv4.OptionClasslessStaticRoute) {
		return // such a client takes option 3
	}
	all := &dhcpv4.Route{Dest: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Router: routers[0]}
	resp.UpdateOption(dhcpv4.OptClasslessStaticRoute(append(routes, all)...))
}
