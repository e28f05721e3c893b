package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// A Query selects a name, and the views for which to compute responses.
type Query struct {
	// Name is a host name in the form that ParseName returns.
	Name string
	// View is Pod or VLAN; empty for both.
	View string
	// VLAN is the NetworkAttachmentDefinition of one VLAN, as "namespace/name"; empty for all VLANs.
	VLAN string
	// Source is the address of a client, which selects its view; the zero Addr for none.
	Source netip.Addr
}

// ParseName returns a host name in lower case and without the final dot. For an address, it is the name whose PTR record has
// the address's host name. It returns an error if the name has more than
// 253 bytes, a label that is empty or has more than 63 bytes, white space, or one of the characters "/", ":" and "@".
func ParseName(text string) (string, error) {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return model.ReverseName(address.Unmap()), nil
	}
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	invalid := name == "" || len(name) > 253 || strings.ContainsAny(name, "/:@ \t\n")
	for label := range strings.SplitSeq(name, ".") {
		invalid = invalid || label == "" || len(label) > 63
	}
	if invalid {
		return "", fmt.Errorf("NAME %q: must be a host name, such as api.demo.example.com, or an address", text)
	}
	return name, nil
}

// Check returns an error if View is not a view, if VLAN is set for the pod view, or if Source is set together with View
// or VLAN. It does not check Name.
func (q *Query) Check() error {
	switch {
	case q.View != "" && q.View != Pod && q.View != VLAN:
		return fmt.Errorf("--view %q: must be %s or %s", q.View, VLAN, Pod)
	case q.VLAN != "" && q.View == Pod:
		return fmt.Errorf("--vlan %s: invalid with --view pod; remove --view or --vlan", q.VLAN)
	case q.Source.IsValid() && (q.View != "" || q.VLAN != ""):
		return fmt.Errorf("--source is mutually exclusive with --view and --vlan: the source address %s selects the view", q.Source)
	default:
		return nil
	}
}

// selectViews returns the VLANs that the query selects, and whether it selects the pod view.
func (q *Query) selectViews(s *model.Snapshot) (vlans []*model.VLAN, pod bool, err error) {
	if q.Source.IsValid() {
		vlans = vlansWith(s.VLANs, q.Source)
		return vlans, len(vlans) == 0, nil
	}
	if q.VLAN != "" {
		at := slices.IndexFunc(s.VLANs, func(v *model.VLAN) bool { return v.Uses(q.VLAN) })
		if at < 0 {
			names := make([]string, len(s.VLANs))
			for i, v := range s.VLANs {
				names[i] = v.Name
			}
			return nil, false, fmt.Errorf("--vlan %s: no Infra uses this network; must be one of: %s", q.VLAN, strings.Join(names, ", "))
		}
		return s.VLANs[at : at+1], false, nil
	}
	if q.View != Pod {
		vlans = s.VLANs
	}
	return vlans, q.View != VLAN, nil
}

// vlansWith returns the VLANs whose subnet has the longest prefix that contains an address. These are several if
// VLANs use the same subnet.
func vlansWith(vlans []*model.VLAN, address netip.Addr) []*model.VLAN {
	var found []*model.VLAN
	longest := -1
	for _, v := range vlans {
		for _, cidr := range v.CIDRs {
			if !cidr.Contains(address) || cidr.Bits() < longest {
				continue
			}
			if cidr.Bits() > longest {
				found, longest = nil, cidr.Bits()
			}
			if !slices.Contains(found, v) {
				found = append(found, v)
			}
		}
	}
	return found
}
