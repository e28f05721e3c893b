package model

import (
	"hash/maphash"
	"maps"
	"net/netip"
)

// addressMap has lists of addresses by name. A modified copy shares the shards that did not change, so that a change
// costs little if there are many names. The zero value is empty.
type addressMap struct {
	shards [256]map[string][]netip.Addr
}

var addressSeed = maphash.MakeSeed()

// shardOf returns the number of the shard of a name.
func (m *addressMap) shardOf(name string) uint64 {
	return maphash.String(addressSeed, name) % uint64(len(m.shards))
}

func (m *addressMap) get(name string) []netip.Addr { return m.shards[m.shardOf(name)][name] }

// set changes m, which must not be in use yet.
func (m *addressMap) set(name string, list []netip.Addr) {
	shard := m.shardOf(name)
	if m.shards[shard] == nil {
		m.shards[shard] = map[string][]netip.Addr{}
	}
	m.shards[shard][name] = list
}

// with returns a copy in which name has the list, or is missing if there is none.
func (m *addressMap) with(name string, list []netip.Addr) *addressMap {
	next := *m
	shard := m.shardOf(name)
	next.shards[shard] = maps.Clone(next.shards[shard])
	if len(list) > 0 {
		next.set(name, list)
	} else {
		delete(next.shards[shard], name)
	}
	return &next
}
