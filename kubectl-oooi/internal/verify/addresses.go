package verify

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
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

// reserve returns an address for the pod on the VLAN. Unless it is outside of the DHCP ranges, it creates the Lease that reserves it,
// which DHCP takes for an ordinary lease and which expires.
func (t *test) reserve(ctx context.Context, duration time.Duration) (netip.Addr, error) {
	s, given := t.site, t.Address.IsValid()
	if given {
		if why := s.unusable(t.Address); why != "" {
			return t.Address, fmt.Errorf("address %s of the pod on the VLAN %s; specify a free address of the VLAN", t.Address, why)
		}
	}
	if given && !s.Infra.Spec.InfraComponents.DHCP.Leasable(t.Address) {
		return t.Address, nil
	}
	taken := s.takenAddresses()
	for range reserveAttempts {
		address := t.Address
		if !given {
			if address = s.freeAddress(taken); !address.IsValid() {
				return address, fmt.Errorf("the DHCP ranges have no free IPv4 address for the pod on the VLAN; specify another free address of the VLAN "+
					"with %s", t.AddressFlag)
			}
			taken[address] = true
			if !s.freeAddress(taken).IsValid() {
				return address, fmt.Errorf("%s is the last free IPv4 address of the DHCP ranges, which a VM may need; specify another free address of the "+
					"VLAN with %s", address, t.AddressFlag)
			}
		}
		err := t.create(ctx, leases.Reservation(s.Infra.Namespace, s.Infra.Name, holder, address, time.Now(), duration))
		switch {
		case err == nil:
			return address, nil
		case !apierrors.IsAlreadyExists(err):
			return address, fmt.Errorf("reserving address %s for the pod on the VLAN: %w", address, err)
		case given:
			return address, fmt.Errorf("address %s of the pod on the VLAN is leased; specify an address that 'kubectl oooi leases' does not list", address)
		}
	}
	return netip.Addr{}, fmt.Errorf("reserving an address for the pod on the VLAN: other clients leased every chosen address first; specify a free "+
		"one with %s", t.AddressFlag)
}

// unusable returns why a pod must not have an address on the VLAN; empty if no reason is known.
func (s *subject) unusable(a netip.Addr) string {
	at := slices.IndexFunc(s.Model.CIDRs, func(subnet netip.Prefix) bool { return subnet.Contains(a) })
	if at < 0 {
		return fmt.Sprintf("is not in %v", s.Model.CIDRs)
	}
	if subnet := s.Model.CIDRs[at].Masked(); a == subnet.Addr() || a.Is4() && !subnet.Contains(a.Next()) && !subnet.IsSingleIP() {
		return "is the first or last one of " + subnet.String() + ", which no host may have"
	}
	apps := s.Infra.Status.AppsIngress
	switch {
	case slices.Contains(s.Model.Assigned(), a):
		return "is that of the gateway, DHCP, DNS or the proxy"
	case apps != nil && slices.Contains(apps.ExternalIPs, a.String()):
		return "is that of apps"
	case s.takenAddresses()[a]:
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
	dhcp := s.Infra.Spec.InfraComponents.DHCP
	for _, r := range slices.Backward(dhcp.EffectiveRanges()) {
		parsed, err := v1alpha1.ParseAddressRange(string(r.Start) + "-" + string(r.End))
		if err != nil {
			continue
		}
		a := parsed.Last
		for range maxCandidates {
			if !parsed.Contains(a) {
				break
			}
			if !taken[a] && a.Is4() && dhcp.Leasable(a) {
				return a
			}
			a = a.Prev()
		}
	}
	return netip.Addr{}
}
