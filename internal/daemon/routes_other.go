//go:build !linux

package daemon

import (
	"net"
	"net/netip"
)

func divertedRoutes(net.Interface, netip.Prefix) []divertedRoute { return nil }
