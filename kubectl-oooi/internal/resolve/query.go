package resolve

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/densityops/oooi/internal/model"
)

// Query is what is asked.
type Query struct {
	Name string
	// View is pod or vlan; empty for both.
	View string
	// VLAN is one VLAN, "namespace/name"; empty for all.
	VLAN string
	// Source is a client, whose view is asked for; invalid for none.
	Source netip.Addr
}

// ParseName reads the name to ask for.
func ParseName(text string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(text, "."))
	bad := name == "" || len(name) > 253 || strings.ContainsAny(name, "/:@ \t\n")
	for label := range strings.SplitSeq(name, ".") {
		bad = bad || label == "" || len(label) > 63
	}
	if bad {
		return "", fmt.Errorf("NAME %q: want a host name, such as api.demo.example.com", text)
	}
	return name, nil
}

// Check finds out whether the words fit together.
func (q *Query) Check() error {
	switch {
	case q.View != "" && q.View != Pod && q.View != VLAN:
		return fmt.Errorf("--view %q: want %s or %s", q.View, VLAN, Pod)
	case q.VLAN != "" && q.View == Pod:
		return fmt.Errorf("--vlan %s: pods are on no VLAN; leave --view or --vlan out", q.VLAN)
	case q.Source.IsValid() && (q.View != "" || q.VLAN != ""):
		return fmt.Errorf("--source %s: it says which view; leave --view and --vlan out", q.Source)
	default:
		return nil
	}
}

// wanted are the VLANs that are asked for, and whether pods' view is.
func (q *Query) wanted(s *model.Snapshot) (vlans []*model.VLAN, pod bool, err error) {
	if q.Source.IsValid() {
		vlans = around(s.VLANs, q.Source)
		return vlans, len(vlans) == 0, nil
	}
	if q.VLAN != "" {
		at := slices.IndexFunc(s.VLANs, func(v *model.VLAN) bool { return v.Name == q.VLAN })
		if at < 0 {
			names := make([]string, len(s.VLANs))
			for i, v := range s.VLANs {
				names[i] = v.Name
			}
			return nil, false, fmt.Errorf("--vlan %s: no Infra is on it; there are: %s", q.VLAN, strings.Join(names, ", "))
		}
		return s.VLANs[at : at+1], false, nil
	}
	if q.View != Pod {
		vlans = s.VLANs
	}
	return vlans, q.View != VLAN, nil
}

// around are the VLANs with the longest of the prefixes that hold an address: several where they
// have the same, which an address does not tell apart.
func around(vlans []*model.VLAN, address netip.Addr) []*model.VLAN {
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
