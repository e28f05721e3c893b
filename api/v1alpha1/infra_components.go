package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// IsEnabled reports whether the DHCP server is deployed: its block exists and enabled is not false.
func (d *InfraDHCP) IsEnabled() bool { return d != nil && trueOrUnset(d.Enabled) }

// IsEnabled reports whether the DNS server is deployed: its block exists and enabled is not false.
func (d *InfraDNS) IsEnabled() bool { return d != nil && trueOrUnset(d.Enabled) }

// IsEnabled reports whether the proxy is deployed: its block exists and enabled is not false.
func (p *InfraProxy) IsEnabled() bool { return p != nil && trueOrUnset(p.Enabled) }

// OnlyDHCP reports whether the Infra consists of DHCP and names no HostedCluster, which DHCP does not need.
func (s *InfraSpec) OnlyDHCP() bool {
	c := &s.InfraComponents
	return c.DHCP.IsEnabled() && !c.DNS.IsEnabled() && !c.Proxy.IsEnabled() && !s.AppsIngress.IsEnabled() && !s.NamedHostedCluster().IsSet()
}

// SendsDefaultRoute reports whether DHCP sends the gateway, if the VLAN has one.
func (d *InfraDHCP) SendsDefaultRoute() bool { return d != nil && trueOrUnset(d.DefaultRoute) }

// SendsDNS reports whether DHCP sends DNS servers.
func (d *InfraDHCP) SendsDNS() bool { return d != nil && trueOrUnset(d.DNS) }

// trueOrUnset reports whether b is nil or true.
func trueOrUnset(b *bool) bool { return b == nil || *b }

// EffectiveInstances returns the DHCP replicas with their addresses: instances or, if empty, one replica at
// serverIP without its prefix length. It returns none if serverIP is empty too, or if d is nil.
func (d *InfraDHCP) EffectiveInstances() []Instance {
	if d == nil {
		return nil
	}
	return effectiveInstances(d.Instances, d.ServerIP, nil)
}

// EffectiveInstances returns the DNS replicas with their addresses: instances or, if empty, one replica at
// serverIP without its prefix length. It returns none if serverIP is empty too, or if d is nil.
func (d *InfraDNS) EffectiveInstances() []Instance {
	if d == nil {
		return nil
	}
	return effectiveInstances(d.Instances, d.ServerIP, nil)
}

// EffectiveInstances returns the proxy replicas with their own addresses, without floating ones: instances
// or, if empty, one replica at serverIP and additionalServerIPs. It returns none if serverIP is empty too, or if p is
// nil.
func (p *InfraProxy) EffectiveInstances() []Instance {
	if p == nil {
		return nil
	}
	return effectiveInstances(p.Instances, p.ServerIP, p.AdditionalServerIPs)
}

// ServerIPs returns the addresses that control-plane names resolve to on the VLAN: serverIP without its
// prefix length, then additionalServerIPs. It returns none if neither is set, or if p is nil.
func (p *InfraProxy) ServerIPs() []IP {
	if p == nil {
		return nil
	}
	var ips []IP
	if p.ServerIP != "" {
		ips = append(ips, withoutPrefixLength(p.ServerIP))
	}
	return append(ips, p.AdditionalServerIPs...)
}

func effectiveInstances(instances []Instance, serverIP string, additional []IP) []Instance {
	if len(instances) > 0 {
		return instances
	}
	if serverIP == "" {
		return nil
	}
	return []Instance{{IP: withoutPrefixLength(serverIP), AdditionalIPs: additional}}
}

func withoutPrefixLength(address string) IP {
	address, _, _ = strings.Cut(address, "/")
	return IP(strings.TrimSpace(address))
}

// LeaseDuration returns leaseTime, or one hour if it is empty or d is nil. It returns an error, which does not name the
// field, if leaseTime is not a Go duration of whole seconds from one minute to one year, as coredhcp requires.
func (d *InfraDHCP) LeaseDuration() (time.Duration, error) {
	text := DefaultLeaseTime
	if d != nil && d.LeaseTime != "" {
		text = d.LeaseTime
	}
	lease, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration, such as 1h30m", text)
	}
	if lease < time.Minute || lease > 365*24*time.Hour || lease%time.Second != 0 {
		return 0, fmt.Errorf("%s is not a number of whole seconds from 1m to 8760h", text)
	}
	return lease, nil
}

// EffectiveRanges returns the ranges of the pool: rangeStart to rangeEnd, without prefix lengths, then
// ranges. If only one of rangeStart and rangeEnd is set, the other end of the first range is empty. It returns none if
// no range is set, or if d is nil.
func (d *InfraDHCP) EffectiveRanges() []DHCPRange {
	if d == nil {
		return nil
	}
	if d.RangeStart == "" && d.RangeEnd == "" {
		return d.Ranges
	}
	first := DHCPRange{Start: withoutPrefixLength(d.RangeStart), End: withoutPrefixLength(d.RangeEnd)}
	return append([]DHCPRange{first}, d.Ranges...)
}

// Leasable reports whether DHCP leases an address: it is in one of EffectiveRanges, and Exclude does not contain it.
// Invalid ranges and invalid entries of Exclude contain no address. It returns false if d is nil.
func (d *InfraDHCP) Leasable(address netip.Addr) bool {
	contains := func(text string) bool {
		r, err := ParseAddressRange(text)
		return err == nil && r.Contains(address)
	}
	return slices.ContainsFunc(d.EffectiveRanges(), func(r DHCPRange) bool { return contains(string(r.Start) + "-" + string(r.End)) }) &&
		!slices.ContainsFunc(d.Exclude, contains)
}

// ClusterDomain returns "clusterName.baseDomain" in lower case and without a trailing dot, or "" if either is
// empty or d is nil.
func (d *InfraDNS) ClusterDomain() string {
	if d == nil {
		return ""
	}
	name, base := trimDomain(d.ClusterName), trimDomain(d.BaseDomain)
	if name == "" || base == "" {
		return ""
	}
	return name + "." + base
}

func trimDomain(domain string) string {
	return strings.ToLower(strings.Trim(strings.TrimSpace(domain), "."))
}
