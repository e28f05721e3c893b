package verify

import (
	"context"
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

// reserve returns an address for the pod on the VLAN. If the address is in the DHCP ranges, reserve creates a Lease that expires and that
// DHCP treats as an ordinary lease.
func (t *test) reserve(ctx context.Context, duration time.Duration) (netip.Addr, error) {
	candidates := []netip.Addr{t.Address}
	if t.Address.IsValid() {
		if why := t.site.unusable(t.Address); why != "" {
			return t.Address, fmt.Errorf("address %s of the pod on the VLAN %s; specify a free address of the VLAN", t.Address, why)
		}
		if !t.site.Infra.Spec.InfraComponents.DHCP.Leasable(t.Address) {
			return t.Address, nil
		}
	} else if candidates = t.site.freeAddresses(); len(candidates) < 2 { // a VM may need the last address
		return netip.Addr{}, fmt.Errorf("the DHCP ranges have fewer than two free IPv4 addresses; specify another free address of the VLAN "+
			"for the pod on the VLAN with %s", t.AddressFlag)
	}
	for _, a := range candidates {
		err := t.create(ctx, leases.Reservation(t.site.Infra.Namespace, t.site.Infra.Name, holder, a, time.Now(), duration))
		if !apierrors.IsAlreadyExists(err) {
			return a, err
		}
	}
	return netip.Addr{}, fmt.Errorf("another client has leased address %s of the pod on the VLAN; with %s, specify an address that 'kubectl oooi "+
		"leases' does not list", candidates[0], t.AddressFlag)
}

// unusable returns why a pod must not have an address on the VLAN; empty if no reason is known.
func (s *subject) unusable(a netip.Addr) string {
	at := slices.IndexFunc(s.Model.CIDRs, func(subnet netip.Prefix) bool { return subnet.Contains(a) })
	if at < 0 {
		return fmt.Sprintf("is not in %v", s.Model.CIDRs)
	}
	if subnet := s.Model.CIDRs[at].Masked(); a == subnet.Addr() || a.Is4() && !subnet.Contains(a.Next()) && !subnet.IsSingleIP() {
		return "is the network or broadcast address of " + subnet.String()
	}
	apps := s.Infra.Status.AppsIngress
	switch {
	case slices.Contains(s.Model.Assigned(), a):
		return "is the address of the gateway, DHCP, DNS or the proxy"
	case apps != nil && slices.Contains(apps.ExternalIPs, a.String()):
		return "is the apps address"
	case s.takenAddresses()[a]:
		return "is leased, or a VM uses it"
	}
	return ""
}

// takenAddresses returns the addresses that the pod must not use: leased addresses, and addresses that VMs report.
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

const (
	// maxFree is the number of free addresses to try, since other clients may lease them at the same time.
	maxFree = 5
	// maxTried is the number of addresses of a range that are checked.
	maxTried = 1024
)

// freeAddresses returns the last free IPv4 addresses of the ranges, at most maxFree: DHCP assigns addresses from the start of a range.
func (s *subject) freeAddresses() []netip.Addr {
	var list []netip.Addr
	taken, dhcp := s.takenAddresses(), s.Infra.Spec.InfraComponents.DHCP
	for _, r := range slices.Backward(dhcp.EffectiveRanges()) {
		parsed, err := v1alpha1.ParseAddressRange(string(r.Start) + "-" + string(r.End))
		if err != nil {
			continue
		}
		a := parsed.Last
		for tried := 0; tried < maxTried && parsed.Contains(a) && len(list) < maxFree; tried++ {
			if !taken[a] && a.Is4() && dhcp.Leasable(a) {
				list = append(list, a)
			}
			a = a.Prev()
		}
	}
	return list
}
