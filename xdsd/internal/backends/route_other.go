//go:build !linux

package backends

import "net/netip"

func interfaceTo(netip.Addr) string { return "" }
