package v1alpha1

import (
	"fmt"
	"strings"
	"time"
)

// IsEnabled reports whether the DHCP server runs: its block exists and does not
// say enabled: false.
func (d *InfraDHCP) IsEnabled() bool { return d != nil && isTrue(d.Enabled) }

// IsEnabled reports whether the DNS server runs: its block exists and does not
// say enabled: false.
func (d *InfraDNS) IsEnabled() bool { return d != nil && isTrue(d.Enabled) }

// IsEnabled reports whether the proxy runs: its block exists and does not say
// enabled: false.
func (p *InfraProxy) IsEnabled() bool { return p != nil && isTrue(p.Enabled) }

// isTrue reads a switch that is on where nothing is said.
func isTrue(b *bool) bool { return b == nil || *b }

// EffectiveInstances returns the DHCP servers and their addresses, serverIP
// spelt out as the one instance that it is short for. Its prefix length is
// dropped.
func (d *InfraDHCP) EffectiveInstances() []Instance {
	if d == nil {
		return nil
	}
	return effectiveInstances(d.Instances, d.ServerIP, nil)
}

// EffectiveInstances returns the DNS servers and their addresses, serverIP
// spelt out as the one instance that it is short for. Its prefix length is
// dropped.
func (d *InfraDNS) EffectiveInstances() []Instance {
	if d == nil {
		return nil
	}
	return effectiveInstances(d.Instances, d.ServerIP, nil)
}

// EffectiveInstances returns the proxies and the addresses that are theirs
// alone. Without instances there is one, which holds serverIP and
// additionalServerIPs.
func (p *InfraProxy) EffectiveInstances() []Instance {
	if p == nil {
		return nil
	}
	return effectiveInstances(p.Instances, p.ServerIP, p.AdditionalServerIPs)
}

// ServerIPs returns the addresses that control plane names resolve to on the
// VLAN: serverIP without its prefix length, then additionalServerIPs.
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

// LeaseDuration returns leaseTime, one hour where it is empty. Any Go duration
// longer than zero is accepted.
func (d *InfraDHCP) LeaseDuration() (time.Duration, error) {
	text := DefaultLeaseTime
	if d != nil && d.LeaseTime != "" {
		text = d.LeaseTime
	}
	lease, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("parse leaseTime: %w", err)
	}
	if lease <= 0 {
		return 0, fmt.Errorf("leaseTime %s is not longer than zero", text)
	}
	return lease, nil
}

// EffectiveRanges returns the ranges of the pool, rangeStart and rangeEnd
// first. A range of which only one end is given has an empty other end.
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

// ClusterDomain returns the domain "clusterName.baseDomain" in lower case and
// without a final dot, or "" where either part is missing.
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
