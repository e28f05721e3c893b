package doctor

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var resolversOffered = Check{
	Code: "OOOI-DHCP-006", Title: "DHCP options match the site", InfraOnly: true, Component: v1alpha1.ComponentDHCP, Run: checkOptions,
	Reads: slices.Concat(site.In(site.AtInfra, site.Infras), nadReads, site.Optional(problemReads)),
	About: "Options in `infraComponents.dhcp.options` override DHCP's defaults, such as oooi's DNS servers and the network's MTU.",
}

// DHCP options (RFC 2132, 3.8 and 5.1).
const (
	dnsOption = 6
	mtuOption = 26
)

func checkOptions(s *Site) []Finding {
	dhcp := s.Infra.Spec.InfraComponents.DHCP
	if dhcp == nil || !dhcp.IsEnabled() {
		return nil
	}
	var findings []Finding
	mtu := s.mtu()
	for _, o := range dhcp.Options {
		isOption := func(code int32, names ...string) bool {
			return o.Code != nil && *o.Code == code || slices.Contains(names, o.Name)
		}
		switch {
		case isOption(dnsOption, "dns") && s.Infra.Spec.InfraComponents.DNS.IsEnabled():
			findings = append(findings, failed(s.Ref(), "remove the option; add upstream resolvers to networkConfig.dnsServers",
				"infraComponents.dhcp.options sets the DNS servers %s: VMs cannot resolve control-plane names", o.Value))
		case isOption(mtuOption, "mtu", "interface-mtu") && mtu > 0 && o.Value != fmt.Sprint(mtu):
			findings = append(findings, failed(s.Ref(), "remove the option, or set it to the MTU of the network",
				"infraComponents.dhcp.options sets MTU %s, but the network has MTU %d", o.Value, mtu))
		}
	}
	return findings
}

var leasesStored = problemCheck(Check{
	Code: "OOOI-DHCP-012", Title: "DHCP stores leases", InfraOnly: true, Component: v1alpha1.ComponentDHCP,
	About: "coredhcp stores a lease before it grants it. If the API server or the disk rejects the lease, clients without an address get none; renewals of " +
		"known " +
		"leases succeed.",
})

var rangesFree = problemCheck(Check{
	Code: "OOOI-DHCP-002", Title: "the DHCP ranges have free addresses", InfraOnly: true, Component: v1alpha1.ComponentDHCP,
	About: "coredhcp releases an address one minute after it saw the deletion of its VM. If coredhcp missed the deletion, it releases the address when " +
		"the VM has been missing for the lease time and 10 minutes; a restart of coredhcp restarts this period. Addresses that other hosts use count as taken.",
})

var onlyDHCPServer = problemCheck(Check{
	Code: "OOOI-DHCP-014", Title: "no other DHCP server answers on the VLAN", InfraOnly: true, Component: v1alpha1.ComponentDHCP,
	About: "coredhcp sees which server clients select, and other servers' replies to broadcasts. The check fails if a VM has used another server, and warns " +
		"otherwise.",
})

var offersRequested = problemCheck(Check{
	Code: "OOOI-DHCP-017", Title: "VMs request the addresses that DHCP offers", InfraOnly: true, Component: v1alpha1.ComponentDHCP,
	About: "If VMs ignore all offers, the offers do not arrive. A switch with DHCP snooping drops offers unless it trusts the ports of the DHCP pods' nodes.",
})

var packetsHandled = problemCheck(Check{
	Code: "OOOI-DHCP-018", Title: "DHCP drops no packets", InfraOnly: true, Component: v1alpha1.ComponentDHCP,
	About: "Packets that arrive faster than DHCP handles them are dropped; clients repeat them.",
})

var dhcpReady = conditionCheck(Check{
	Code: "OOOI-DHCP-001", Title: "DHCP is ready", Component: v1alpha1.ComponentDHCP,
	About: "Condition DHCPReady: every replica is ready to lease addresses.",
}, v1alpha1.ConditionDHCPReady)

var macsUnique = problemCheck(Check{
	Code: "OOOI-DHCP-009", Title: "MAC addresses of VMs are unique", InfraOnly: true, Component: componentVMs,
	About: "Of several VMs with the same MAC address, DHCP serves one. Templates with a MAC address create such VMs.",
})

var annotationsValid = problemCheck(Check{
	Code: "OOOI-DHCP-010", Title: "annotations of VMs are valid", InfraOnly: true, Component: componentVMs,
	About: "DHCP ignores invalid annotations.",
})

var clientsKnown = problemCheck(Check{
	Code: "OOOI-DHCP-015", Title: "clients' MAC addresses belong to VMs", InfraOnly: true, Component: componentVMs, Run: checkOtherMACs,
	Reads: site.Optional(site.In(site.AtControlPlane, site.VMIs)),
	About: "DHCP replies only to MAC addresses of VMs on the network. A guest that uses another MAC address than its VM's specification, or an interface on " +
		"another network, gets no address.",
})

var leasesKept = problemCheck(Check{
	Code: "OOOI-DHCP-016", Title: "no leases are lost", InfraOnly: true, Component: componentVMs,
	About: "If a Lease object is deleted or edited, the VM keeps its address. coredhcp stores the lease again when the VM renews it.",
})

var leasesUnused = problemCheck(Check{
	Code: "OOOI-DHCP-004", Title: "no other host uses addresses of the DHCP ranges", InfraOnly: true, Component: componentOther,
	About: "DHCP probes addresses before it leases them, and quarantines addresses in use. A router with proxy ARP answers for all addresses.",
})

var rangesSufficient = Check{
	Code: "OOOI-DHCP-013", Title: "the DHCP ranges have addresses for the largest size of the " +
		"NodePools", InfraOnly: true, Component: componentOther, Run: checkPoolSizes,
	Reads: slices.Concat(hostedReads, site.In(site.AtHosted, site.NodePools)),
	About: "A NodePool can have as many VMs as `replicas` or the autoscaler's maximum, and one more during a rollout with upgrade type Replace.",
}

func checkPoolSizes(s *Site) []Finding {
	if !s.enabled(v1alpha1.ComponentDHCP) || s.Hosted() == nil {
		return nil
	}
	addresses := int64(0)
	for _, r := range s.Infra.Spec.InfraComponents.DHCP.EffectiveRanges() {
		parsed, err := v1alpha1.ParseAddressRange(string(r.Start) + "-" + string(r.End))
		if err != nil || !parsed.First.Is4() {
			return nil // the ranges are invalid, or never too small
		}
		addresses += number(parsed.Last.As4()) - number(parsed.First.As4()) + 1
	}
	wanted := int64(0)
	var evidence []string
	for _, u := range s.nodePools() {
		n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		if most, ok, _ := unstructured.NestedInt64(u.Object, "spec", "autoScaling", "max"); ok {
			n = most
		}
		surge := int64(0)
		if kind, _, _ := unstructured.NestedString(u.Object, "spec", "management", "upgradeType"); kind == "Replace" {
			surge = 1
		}
		wanted += n + surge
		evidence = append(evidence, fmt.Sprintf("NodePool %s: %d VMs, and %d more during a rollout", u.GetName(), n, surge))
	}
	if wanted <= addresses || addresses == 0 {
		return nil
	}
	return []Finding{warned(s.Ref(), "extend infraComponents.dhcp.ranges before the NodePools grow", "the NodePools can have %d VMs, but the DHCP ranges "+
		"have only %d addresses", wanted, addresses).withEvidence(evidence...)}
}

// number returns an IPv4 address as a number.
func number(a [4]byte) int64 {
	n := int64(0)
	for _, b := range a {
		n = n<<8 | int64(b)
	}
	return n
}

// isUnknown reports whether DHCP has reported that a MAC address belongs to no VM.
func (s *Site) isUnknown(mac string) bool {
	return slices.ContainsFunc(s.problemFindings("OOOI-DHCP-015"), func(f Finding) bool {
		return strings.Contains(f.Message+strings.Join(f.Evidence, " "), mac)
	})
}
