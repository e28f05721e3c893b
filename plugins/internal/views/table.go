package views

import (
	"net/netip"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

// Table is what each client of a server block sees, made from one snapshot. It is
// immutable.
type Table struct {
	clients clients
	sights  map[*model.View]*Sight
}

// Sight returns what a client sees. It returns nil for a client that is to be
// refused: none of the views is its own.
func (t *Table) Sight(client netip.Addr) *Sight { return t.clients.find(client) }

// newTable applies the views of a block to a snapshot. What is in the table before, if
// there is one, and has not changed since is in the new one as well.
func (cfg *Config) newTable(snapshot *model.Snapshot, ttls nametree.TTLs, serial uint32, before *Table) *Table {
	b := tableBuilder{
		cfg: cfg, snapshot: snapshot, ttls: ttls, serial: serial, before: before,
		table: &Table{sights: map[*model.View]*Sight{}},
	}
	if before == nil {
		b.before = &Table{}
	}
	switch {
	case cfg.Block != "":
		if s := b.fixed(cfg.Block); s != nil {
			b.table.clients.others = s
		} else {
			b.addVLANs(everywhere)
		}
	case len(cfg.Views) > 0:
		if cfg.podsAlone() {
			b.addVLANs(everywhere)
		}
		for _, v := range cfg.Views {
			b.addView(v)
		}
	default:
		b.addVLANs(everywhere)
		b.table.clients.others, b.table.clients.routed = b.fixed(Pod), true
	}
	return b.table
}

// everywhere holds the address of every client.
var everywhere = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

type tableBuilder struct {
	cfg      *Config
	snapshot *model.Snapshot
	table    *Table
	ttls     nametree.TTLs
	serial   uint32
	before   *Table
	vlans    []vlanSight
}

// sight shows a view of the model under a name.
func (b *tableBuilder) sight(name string, v *model.View) *Sight {
	s := b.before.sights[v]
	if s == nil || s.View != name {
		s = &Sight{View: name, Tree: nametree.New(v, b.ttls, b.serial, b.cfg.Bound...)}
	}
	b.table.sights[v] = s
	return s
}

type vlanSight struct {
	*model.VLAN
	sight *Sight
}

// fixed returns what every client of the view sees, or nil when that depends on
// the client's VLAN.
func (b *tableBuilder) fixed(view string) *Sight {
	answer, answered := b.cfg.Answers[view]
	switch {
	case answered:
		addresses := answer.Addresses
		if answer.Service != "" {
			addresses = b.snapshot.ServiceIPs(answer.Service)
		}
		publications := make([]model.Publication, len(b.snapshot.Clusters))
		for i, c := range b.snapshot.Clusters {
			own := model.Answer{Served: true, Addresses: addresses}
			publications[i] = model.Publication{Cluster: c, ControlPlane: own, Apps: c.AppsAnswer()}
			if view == Pod && c.Apps != nil {
				publications[i].Apps = own // as in the view that it stands in for
			}
		}
		return b.sight(view, model.NewView(publications, b.before.viewNamed(view)))
	case view == Pod:
		return b.sight(view, b.snapshot.Pod)
	default:
		return nil
	}
}

// addView shows a view to the clients in its CIDRs.
func (b *tableBuilder) addView(v View) {
	s := b.fixed(v.Name)
	if s == nil {
		b.addVLANs(v.CIDRs)
		return
	}
	for _, cidr := range v.CIDRs {
		b.table.clients.add(cidr, s)
	}
}

// addVLANs shows each VLAN its own names, as far as its clients lie in the CIDRs
// given. A CIDR that no VLAN claims is that of the only VLAN, if there is but one;
// otherwise its clients see nothing, rather than a guess.
func (b *tableBuilder) addVLANs(cidrs []netip.Prefix) {
	vlans := b.vlanSights()
	owner := map[netip.Prefix]*model.VLAN{}
	add := func(cidr netip.Prefix, v vlanSight) {
		if first := owner[cidr]; first != nil && first != v.VLAN {
			b.table.clients.add(cidr, nil) // two VLANs with one CIDR: an address tells nothing
			return
		}
		owner[cidr] = v.VLAN
		b.table.clients.add(cidr, v.sight)
	}
	for _, v := range vlans {
		for _, own := range v.CIDRs {
			for _, cidr := range cidrs {
				if cidr.Overlaps(own) {
					add(longer(cidr, own), v)
				}
			}
		}
	}
	if len(vlans) != 1 {
		return
	}
	for _, cidr := range cidrs {
		if owner[cidr] == nil && cidr.Bits() > 0 {
			add(cidr, vlans[0])
		}
	}
}

// vlanSights makes the tree of each VLAN, once.
func (b *tableBuilder) vlanSights() []vlanSight {
	if b.vlans == nil {
		for _, v := range b.snapshot.VLANs {
			b.vlans = append(b.vlans, vlanSight{v, b.sight(VLAN, v.View)})
		}
	}
	return b.vlans
}

// viewNamed returns the view that the table shows under a name, if there is just one.
func (t *Table) viewNamed(name string) *model.View {
	var found *model.View
	for v, s := range t.sights {
		if s.View == name && found != nil {
			return nil
		}
		if s.View == name {
			found = v
		}
	}
	return found
}

// gone returns the zones that the table before had and this one has not, by view.
func (t *Table) gone(before *Table) map[zoneInView]bool {
	zones := map[zoneInView]bool{}
	note := func(in, notIn *Table, gone bool) {
		for v, s := range in.sights {
			if notIn.sights[v] == s {
				continue // and so are its zones
			}
			for _, z := range s.Tree.Zones() {
				if key := (zoneInView{s.View, z.Origin}); gone {
					zones[key] = true
				} else {
					delete(zones, key)
				}
			}
		}
	}
	note(before, t, true)
	note(t, before, false)
	return zones
}

// longer returns the smaller of two networks of which one holds the other.
func longer(a, b netip.Prefix) netip.Prefix {
	if a.Bits() > b.Bits() {
		return a
	}
	return b
}
