package views

import (
	"net/netip"
	"slices"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/plugins/internal/nametree"
	"github.com/densityops/oooi/plugins/internal/reuse"
)

// A Table maps the clients of a server block to their views. It is immutable and built from one snapshot.
type Table struct {
	clients clients
	vlans   []*model.VLAN          // whose views clients get
	common  map[string]*commonView // by name
	// counters are the counters of each view, by name.
	counters map[string]*viewCounters
	// conflicts are why records of the Corefile's file are not served.
	conflicts []string
}

// A commonView is a view that does not depend on the client's VLAN.
type commonView struct {
	*ClientView

	addresses []netip.Addr  // from the Corefile, instead of the Infras'
	parts     []*model.Part // of the snapshot
}

// ClientView returns the view of a client, or nil if the client has none and must be refused.
func (t *Table) ClientView(client netip.Addr) *ClientView { return t.clients.find(client) }

// newTable applies the views of a block to a snapshot. It reuses what did not change since the previous table, which may
// be nil. records come from the Corefile's records file; nil for none.
func (cfg *Config) newTable(snapshot *model.Snapshot, records *model.RecordSet, ttls nametree.TTLs, serial uint32, previous *Table) *Table {
	if previous == nil {
		previous = &Table{}
	}
	b := tableBuilder{
		cfg: cfg, snapshot: snapshot, records: records, ttls: ttls, serial: serial, previous: previous,
		table: &Table{common: map[string]*commonView{}, counters: previous.counters},
	}
	if b.table.counters == nil {
		b.table.counters = map[string]*viewCounters{}
		for _, name := range append(cfg.viewNames(), VLAN) {
			b.table.counters[name] = &viewCounters{}
		}
	}
	b.addViews()
	clients := &b.table.clients
	if previous.clients.byPrefix != nil && slices.EqualFunc(previous.vlans, b.table.vlans, sameNetworks) {
		clients.networks = previous.clients.networks
	} else {
		b.addNetworks()
	}
	switch {
	case cfg.Block != "":
		clients.others = b.table.common[cfg.Block].clientView()
	case len(cfg.Views) == 0:
		clients.others, clients.routed = b.table.common[Pod].clientView(), true
	}
	return b.table
}

// clientView returns the ClientView, or nil if v is nil.
func (v *commonView) clientView() *ClientView {
	if v == nil {
		return nil
	}
	return v.ClientView
}

func sameNetworks(a, b *model.VLAN) bool {
	return a == b || a.Name == b.Name && slices.Equal(a.CIDRs, b.CIDRs)
}

// everywhere contains all addresses.
var everywhere = []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}

type tableBuilder struct {
	cfg      *Config
	snapshot *model.Snapshot
	records  *model.RecordSet
	table    *Table
	ttls     nametree.TTLs
	serial   uint32
	previous *Table
	numbers  map[string]int // of the common views, by name
}

// addViews builds the VLANs' views, unless no client gets one, and the views that all clients share.
func (b *tableBuilder) addViews() {
	t := b.table
	if b.usesVLANs() {
		t.vlans = b.snapshot.VLANs
	}
	viewOf := func(v *model.VLAN) *model.View { return v.View }
	build := viewOf
	if b.cfg.hasRecords(VLAN) { // which may have changed
		previous := *b.previous
		previous.vlans, previous.clients.views = nil, nil
		b.previous = &previous
		build = func(v *model.VLAN) *model.View { return b.withRecords(v.View, VLAN) }
	}
	t.clients.views = reuse.Values(b.previous.vlans, b.previous.clients.views, t.vlans, viewOf, func(v *model.VLAN) *ClientView {
		return &ClientView{Name: VLAN, Tree: nametree.New(build(v), b.ttls, b.serial, b.cfg.Bound...), counters: t.counters[VLAN]}
	}, func(*ClientView) {})
	b.numbers = map[string]int{}
	for _, name := range b.cfg.viewNames() {
		if v := b.commonView(name); v != nil {
			b.numbers[name] = commonNumber(len(t.clients.common))
			t.common[name] = v
			t.clients.common = append(t.clients.common, v.ClientView)
		}
	}
}

// withRecords returns a view with the records that the Corefile defines for it.
func (b *tableBuilder) withRecords(v *model.View, name string) *model.View {
	v = v.With(b.ownRecords(name))
	if b.records != nil {
		for _, p := range v.Conflicts(b.records.Owner) {
			if !slices.Contains(b.table.conflicts, p.Message) {
				b.table.conflicts = append(b.table.conflicts, p.Message)
			}
		}
	}
	return v
}

// usesVLANs reports whether clients may get the view of a VLAN.
func (b *tableBuilder) usesVLANs() bool {
	if len(b.cfg.Views) == 0 && b.cfg.Block == "" {
		return true
	}
	return b.cfg.definesOnlyPods() || slices.ContainsFunc(b.cfg.viewNames(), func(name string) bool { return !b.isCommon(name) })
}

// isCommon reports whether what clients of the named view see does not depend on their VLAN.
func (b *tableBuilder) isCommon(view string) bool {
	_, answered := b.cfg.Answers[view]
	return answered || view == Pod
}

// commonView returns what all clients of the named view see, or nil if that depends on the client's VLAN.
func (b *tableBuilder) commonView(name string) *commonView {
	if !b.isCommon(name) {
		return nil
	}
	previous := b.previous.common[name]
	if previous == nil {
		previous = &commonView{ClientView: &ClientView{}}
	}
	next := &commonView{parts: b.snapshot.Parts}
	answer, answered := b.cfg.Answers[name]
	if next.addresses = answer.Addresses; answer.Service != "" {
		next.addresses = b.snapshot.ServiceIPs(answer.Service)
	}
	if b.cfg.hasRecords(name) {
		view := b.snapshot.Pod()
		if answered {
			view = answeredView(&model.Part{Clusters: b.snapshot.Clusters}, name, next.addresses)
		}
		tree := nametree.New(b.withRecords(view, name), b.ttls, b.serial, b.cfg.Bound...)
		next.ClientView = &ClientView{Name: name, Tree: tree, counters: b.table.counters[name]}
		return next
	}
	tree := previous.Tree
	if !slices.Equal(previous.addresses, next.addresses) {
		tree = nil
	}
	if answered {
		next.ClientView = nextView(b, previous, tree, name, nametree.Parts[*model.Part, *model.Part]{
			List: next.parts, Key: func(part *model.Part) *model.Part { return part },
			View: func(part *model.Part) *model.View { return answeredView(part, name, next.addresses) },
		})
		return next
	}
	podView := func(part *model.Part) *model.View { return part.Pod }
	next.ClientView = nextView(b, previous, tree, name, nametree.Parts[*model.Part, *model.View]{List: next.parts, Key: podView, View: podView})
	return next
}

// nextView returns the view of the parts: previous's view if no part differs. tree is the tree of previous, or nil if
// none of its names can be reused.
func nextView[K comparable](b *tableBuilder, previous *commonView, tree *nametree.Tree, name string, parts nametree.Parts[*model.Part, K]) *ClientView {
	same := func(a, c *model.Part) bool { return a == c || parts.Key(a) == parts.Key(c) }
	if tree != nil && slices.EqualFunc(previous.parts, parts.List, same) {
		return previous.ClientView
	}
	return &ClientView{
		Name: name, Tree: nametree.Next(tree, previous.parts, parts, b.ttls, b.serial, b.cfg.Bound...), counters: b.table.counters[name],
	}
}

// answeredView returns the named view of a part, with addresses from the Corefile.
func answeredView(part *model.Part, name string, addresses []netip.Addr) *model.View {
	publications := make([]model.Publication, len(part.Clusters))
	for i, c := range part.Clusters {
		own := model.Answer{Served: true, Addresses: addresses}
		publications[i] = model.Publication{Cluster: c, ControlPlane: own, Apps: c.AppsAnswer()}
		if name == Pod && c.Apps != nil {
			publications[i].Apps = own // as in the pod view that the answer replaces
		}
	}
	return model.NewView(publications, nil, nil)
}

// addNetworks assigns views to the networks of clients.
func (b *tableBuilder) addNetworks() {
	switch {
	case b.cfg.Block != "":
		if b.table.common[b.cfg.Block] == nil {
			b.addVLANs(everywhere)
		}
	case len(b.cfg.Views) > 0:
		if b.cfg.definesOnlyPods() {
			b.addVLANs(everywhere)
		}
		for _, v := range b.cfg.Views {
			b.addView(v)
		}
	default:
		b.addVLANs(everywhere)
	}
}

// addView assigns the named view to the clients in its CIDRs.
func (b *tableBuilder) addView(v View) {
	number, common := b.numbers[v.Name]
	if !common {
		b.addVLANs(v.CIDRs)
		return
	}
	for _, cidr := range v.CIDRs {
		b.table.clients.add(cidr, number)
	}
}

// addVLANs assigns the view of each VLAN to its clients within the given CIDRs. A CIDR that overlaps no VLAN
// belongs to the only VLAN if there is exactly one; otherwise its clients get no view.
func (b *tableBuilder) addVLANs(cidrs []netip.Prefix) {
	owner := map[netip.Prefix]*model.VLAN{}
	add := func(cidr netip.Prefix, number int) {
		v := b.table.vlans[number]
		if first := owner[cidr]; first != nil && first != v {
			b.table.clients.add(cidr, noView) // two VLANs share the CIDR, so the address identifies neither
			return
		}
		owner[cidr] = v
		b.table.clients.add(cidr, number)
	}
	for number, v := range b.table.vlans {
		for _, own := range v.CIDRs {
			for _, cidr := range cidrs {
				if cidr.Overlaps(own) {
					add(longerPrefix(cidr, own), number)
				}
			}
		}
	}
	if len(b.table.vlans) != 1 {
		return
	}
	for _, cidr := range cidrs {
		if owner[cidr] == nil && cidr.Bits() > 0 {
			add(cidr, 0)
		}
	}
}

// longerPrefix returns the smaller of two networks, one of which contains the other.
func longerPrefix(a, b netip.Prefix) netip.Prefix {
	if a.Bits() > b.Bits() {
		return a
	}
	return b
}
