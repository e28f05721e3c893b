package verify

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/testclient"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// holder is the holder of the Lease that reserves the address of the pod on the VLAN.
const holder = "oooi-" + testclient.Component

// reservationHolder returns the client, as in leases.Lease, of that Lease.
func reservationHolder() string { return "id:" + hex.EncodeToString([]byte(holder)) }

// reserveAttempts is how many addresses are tried if other clients lease the chosen ones at the same time.
const reserveAttempts = 5

// reserve returns an address for the pod and the Lease that reserves it, which DHCP takes for an ordinary lease
// and which expires. The Lease is nil if the address is outside of the DHCP ranges.
func (p *Prober) reserve(ctx context.Context, s *subject, pod *clientPod) (netip.Addr, *coordinationv1.Lease, error) {
	given := p.Address.IsValid()
	if given {
		if why := s.unusable(p.Address); why != "" {
			return p.Address, nil, fmt.Errorf("address %s of the pod on the VLAN %s; specify a free address of the VLAN", p.Address, why)
		}
	}
	if given && !s.inRanges(p.Address) {
		return p.Address, nil, nil
	}
	taken := s.takenAddresses()
	for range reserveAttempts {
		address := p.Address
		if !given {
			if address = s.freeAddress(taken); !address.IsValid() {
				return address, nil, fmt.Errorf("the DHCP ranges have no free IPv4 address for the pod on the VLAN; specify another free address of the VLAN "+
					"with %s", p.AddressFlag)
			}
			taken[address] = true
			if !s.freeAddress(taken).IsValid() {
				return address, nil, fmt.Errorf("%s is the last free IPv4 address of the DHCP ranges, which a VM may need; specify another free address of the "+
					"VLAN with %s", address, p.AddressFlag)
			}
		}
		lease := leases.Reservation(s.Infra.Namespace, s.Infra.Name, holder, address, time.Now(), pod.leftover())
		err := p.Client.Create(ctx, lease)
		switch {
		case err == nil:
			return address, lease, nil
		case !apierrors.IsAlreadyExists(err):
			return address, nil, fmt.Errorf("reserving address %s for the pod on the VLAN: %w", address, err)
		case given:
			return address, nil, fmt.Errorf("address %s of the pod on the VLAN is leased; specify an address that 'kubectl oooi leases' does not list", address)
		}
	}
	return netip.Addr{}, nil, fmt.Errorf("reserving an address for the pod on the VLAN: other clients leased every chosen address first; specify a free "+
		"one with %s", p.AddressFlag)
}

// unusable returns why a pod must not have an address on the VLAN; empty if no reason is known.
func (s *subject) unusable(a netip.Addr) string {
	network := s.Infra.Spec.NetworkConfig
	subnets := []string{network.CIDR}
	for _, c := range network.AdditionalCIDRs {
		subnets = append(subnets, string(c))
	}
	at := slices.IndexFunc(subnets, func(text string) bool {
		subnet, err := netip.ParsePrefix(text)
		return err == nil && subnet.Contains(a)
	})
	if at < 0 {
		return "is not in " + strings.Join(subnets, " or ")
	}
	if subnet := netip.MustParsePrefix(subnets[at]).Masked(); a == subnet.Addr() || a.Is4() && !subnet.Contains(a.Next()) && !subnet.IsSingleIP() {
		return "is the first or last one of " + subnet.String() + ", which no host may have"
	}
	is := func(text string) bool {
		one, err := v1alpha1.ParseAddress(text)
		return err == nil && one == a
	}
	if a == s.Model.Gateway() {
		return "is the gateway's"
	}
	if apps := s.Infra.Status.AppsIngress; apps != nil && slices.ContainsFunc(apps.ExternalIPs, is) {
		return "is that of apps"
	}
	components := s.Infra.Spec.InfraComponents
	for _, c := range []struct {
		name      string
		enabled   bool
		instances []v1alpha1.Instance
	}{
		{v1alpha1.ComponentDHCP, components.DHCP.IsEnabled(), components.DHCP.EffectiveInstances()},
		{v1alpha1.ComponentDNS, components.DNS.IsEnabled(), components.DNS.EffectiveInstances()},
		{v1alpha1.ComponentProxy, components.Proxy.IsEnabled(), components.Proxy.EffectiveInstances()},
	} {
		for _, i := range c.instances {
			if c.enabled && slices.ContainsFunc(append([]v1alpha1.IP{i.IP}, i.AdditionalIPs...), func(ip v1alpha1.IP) bool { return is(string(ip)) }) {
				return "is that of " + c.name
			}
		}
	}
	if s.takenAddresses()[a] {
		return "is leased, or a VM has it"
	}
	return ""
}

// takenAddresses returns the addresses that the pod must not use: leased ones and those that VMs report.
func (s *subject) takenAddresses() map[netip.Addr]bool {
	taken := map[netip.Addr]bool{}
	for _, o := range site.All[coordinationv1.Lease](s.Site, site.Leases, site.AtInfra) {
		if l, err := leases.Read(o, s.Facts.Taken); err == nil && l != nil && l.Infra == s.Infra.Name {
			taken[l.Address] = true
		}
	}
	for _, u := range s.List(site.VMIs, site.AtControlPlane) {
		for _, a := range read.MachineAddresses(u, s.Networks, s.Network().Key()) {
			taken[a] = true
		}
	}
	return taken
}

// maxCandidates is the number of addresses of a range that are tried.
const maxCandidates = 1024

// freeAddress returns the last free IPv4 address of the ranges, since DHCP assigns the first ones first; the zero Addr if
// there is none.
func (s *subject) freeAddress(taken map[netip.Addr]bool) netip.Addr {
	for _, r := range slices.Backward(s.ranges()) {
		a := r.Last
		for range maxCandidates {
			if !r.Contains(a) {
				break
			}
			if !taken[a] && a.Is4() {
				return a
			}
			a = a.Prev()
		}
	}
	return netip.Addr{}
}

// ranges returns the ranges from which DHCP leases addresses.
func (s *subject) ranges() []v1alpha1.AddressRange {
	var list []v1alpha1.AddressRange
	for _, r := range s.Infra.Spec.InfraComponents.DHCP.EffectiveRanges() {
		if parsed, err := v1alpha1.ParseAddressRange(string(r.Start) + "-" + string(r.End)); err == nil {
			list = append(list, parsed)
		}
	}
	return list
}

// inRanges reports whether DHCP may lease an address.
func (s *subject) inRanges(a netip.Addr) bool {
	return slices.ContainsFunc(s.ranges(), func(r v1alpha1.AddressRange) bool { return r.Contains(a) })
}
