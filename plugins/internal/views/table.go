package views

import (
	"net/netip"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/nametree"
)

// A Table maps the clients of a server block to their views. It is immutable and built from one snapshot.
type Table struct {
	clients clients
	views   map[*model.View]*ClientView
}

// ClientView returns the view of a client, or nil if the client has none and must be refused.
func (t *Table) ClientView(client netip.Addr) *ClientView { return t.clients.find(client) }

// newTable applies the views of a block to a snapshot. It reuses the unchanged views of the previous table,
// which may be nil.
func (cfg *Config) newTable(snapshot *model.Snapshot, ttls nametree.TTLs, serial uint32, previous *Table) *Table {
	b := tableBuilder{
		cfg: cfg, snapshot: snapshot, ttls: ttls, serial: serial, previous: previous,
		table: &Table{views: map[*model.View]*ClientView{}},
	}
	if previous == nil {
		b.previous = &Table{}
	}
	switch {
	case cfg.Block != "":
		if cv := b.commonView(cfg.Block); cv != nil {
			b.table.clients.others = cv
		} else {
			b.addVLANs(everywhere)
		}
	case len(cfg.Views) > 0:
		if cfg.definesOnlyPods() {
			b.addVLANs(everywhere)
		}
		for _, v := range cfg.Views {
			b.addView(v)
		}
	default:
		b.addVLANs(everywhere)
		b.table.clients.others, b.table.clients.routed = b.commonView(Pod), true
	}
	return b.table
}

// everywhere contains all addresses.
var everywhere = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

type tableBuilder struct {
	cfg      *Config
	snapshot *model.Snapshot
	table    *Table
	ttls     nametree.TTLs
	serial   uint32
	previous *Table
	vlans    []vlanView
}

// clientView returns the ClientView of a view of the model, under the given name.
func (b *tableBuilder) clientView(name string, v *model.View) *ClientView {
	cv := b.previous.views[v]
	if cv == nil || cv.Name != name {
		cv = &ClientView{Name: name, Tree: nametree.New(v, b.ttls, b.serial, b.cfg.Bound...)}
	}
	b.table.views[v] = cv
	return cv
}

type vlanView struct {
	*model.VLAN
	clientView *ClientView
}

// commonView returns what all clients of the named view see, or nil if that depends on the client's VLAN.
func (b *tableBuilder) commonView(view string) *ClientView {
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
				publications[i].Apps = own // as in the pod view that the answer replaces
			}
		}
		return b.clientView(view, model.NewView(publications, b.previous.viewNamed(view)))
	case view == Pod:
		return b.clientView(view, b.snapshot.Pod())
	default:
		return nil
	}
}

// addView assigns the named view to the clients in its CIDRs.
func (b *tableBuilder) addView(v View) {
	cv := b.commonView(v.Name)
	if cv == nil {
		b.addVLANs(v.CIDRs)
		return
	}
	for _, cidr := range v.CIDRs {
		b.table.clients.add(cidr, cv)
	}
}

// addVLANs assigns the view of each VLAN to its clients within the given CIDRs. A CIDR that overlaps no VLAN
// belongs to the only VLAN if there is exactly one; otherwise its clients get no view.
func (b *tableBuilder) addVLANs(cidrs []netip.Prefix) {
	vlans := b.vlanViews()
	owner := map[netip.Prefix]*model.VLAN{}
	add := func(cidr netip.Prefix, v vlanView) {
		if first := owner[cidr]; first != nil && first != v.VLAN {
			b.table.clients.add(cidr, nil) // two VLANs share the CIDR, so the address identifies neither
			return
		}
		owner[cidr] = v.VLAN
		b.table.clients.add(cidr, v.clientView)
	}
	for _, v := range vlans {
		for _, own := range v.CIDRs {
			for _, cidr := range cidrs {
				if cidr.Overlaps(own) {
					add(longerPrefix(cidr, own), v)
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

// vlanViews returns the views of all VLANs, which it builds once.
func (b *tableBuilder) vlanViews() []vlanView {
	if b.vlans == nil {
		for _, v := range b.snapshot.VLANs {
			b.vlans = append(b.vlans, vlanView{v, b.clientView(VLAN, v.View)})
		}
	}
	return b.vlans
}

// viewNamed returns the view of the model that the table has under a name, or nil if it has none or several.
func (t *Table) viewNamed(name string) *model.View {
	var found *model.View
	for v, cv := range t.views {
		if cv.Name == name && found != nil {
			return nil
		}
		if cv.Name == name {
			found = v
		}
	}
	return found
}

// longerPrefix returns the smaller of two networks of which one contains the other.
func longerPrefix(a, b netip.Prefix) netip.Prefix {
	if a.Bits() > b.Bits() {
		return a
	}
	return b
}
