package nametree

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
)

// An index is an immutable hash table of nodes by name. Its copies share unchanged pages, so that changing a few of
// many names is cheap. The zero index is empty.
type index struct {
	pages []*page
	mask  uint32 // number of buckets - 1
	size  int    // number of nodes
	// labels is at least the number of labels of every node.
	labels int
}

// A page contains consecutive buckets. A bucket contains the nodes whose hashes share the bits in mask.
type page struct {
	ends    [pageSize]uint16 // of the buckets in entries
	entries []entry
}

// pageSize is the number of buckets in a page, unless the index has fewer.
const pageSize = 16

type entry struct {
	hash uint32
	node *Node
}

// The average number of nodes in a bucket of a new index is between half of this and this. It may become four times
// as large or small before the index is built again.
const bucketSize = 6

// hashSeed is random, so that clients cannot choose names with colliding hashes.
var hashSeed = uint32(maphash.String(maphash.MakeSeed(), ""))

// hashByte adds the preceding byte of a name to hash, the hash (FNV-1a) of the bytes after it.
func hashByte(hash uint32, c byte) uint32 { return (hash ^ uint32(c)) * 16777619 }

func hashOf(name string) uint32 {
	hash := hashSeed
	for i := len(name) - 1; i >= 0; i-- {
		hash = hashByte(hash, name[i])
	}
	return hash
}

// bucketOf returns the number of a hash's bucket.
func (x *index) bucketOf(hash uint32) uint32 { return (hash ^ hash>>15) & x.mask }

// find returns the node with a name and its hash, or nil.
func (x *index) find(hash uint32, name []byte) *Node {
	if x.size == 0 {
		return nil
	}
	i := x.bucketOf(hash)
	p, start := x.pages[i/pageSize], uint16(0)
	if i%pageSize > 0 {
		start = p.ends[i%pageSize-1]
	}
	for _, e := range p.entries[start:p.ends[i%pageSize]] {
		if e.hash == hash && e.node.name == string(name) {
			return e.node
		}
	}
	return nil
}

// with returns an index without the removed nodes and with the added ones.
func (x *index) with(removed, added []*Node) index {
	labels := x.labels
	for _, n := range added {
		labels = max(labels, strings.Count(n.name, ".")+1)
	}
	size := x.size - len(removed) + len(added)
	if buckets := int(x.mask) + 1; x.size == 0 || size > 4*bucketSize*buckets || buckets > 1 && 8*size < bucketSize*buckets {
		return x.rebuilt(removed, added, size, labels)
	}
	next := index{pages: slices.Clone(x.pages), mask: x.mask, size: size, labels: labels}
	changed := map[uint32][]entry{} // the entries of pages that change
	entriesOf := func(hash uint32) (uint32, []entry) {
		i := next.bucketOf(hash) / pageSize
		list, ok := changed[i]
		if !ok {
			list = append(make([]entry, 0, len(x.pages[i].entries)+2), x.pages[i].entries...)
		}
		return i, list
	}
	for _, n := range removed {
		i, list := entriesOf(hashOf(n.name))
		changed[i] = slices.DeleteFunc(list, func(e entry) bool { return e.node == n })
	}
	for _, n := range added {
		hash := hashOf(n.name)
		i, list := entriesOf(hash)
		changed[i] = append(list, entry{hash, n})
	}
	for i, list := range changed {
		next.pages[i] = next.newPage(list)
	}
	return next
}

// newPage returns a page with the entries.
func (x *index) newPage(entries []entry) *page {
	p := &page{entries: make([]entry, len(entries))}
	for _, e := range entries {
		p.ends[x.bucketOf(e.hash)%pageSize]++
	}
	var free [pageSize]uint16 // the next free place of each bucket
	for i := 1; i < pageSize; i++ {
		free[i] = p.ends[i-1]
		p.ends[i] += p.ends[i-1]
	}
	for _, e := range entries {
		place := &free[x.bucketOf(e.hash)%pageSize]
		p.entries[*place] = e
		*place++
	}
	return p
}

// rebuilt returns what with does, with a suitable number of buckets.
func (x *index) rebuilt(removed, added []*Node, size, labels int) index {
	if size == 0 {
		return index{}
	}
	gone := make(map[*Node]bool, len(removed))
	for _, n := range removed {
		gone[n] = true
	}
	all := make([]entry, 0, size)
	for _, p := range x.pages {
		for _, e := range p.entries {
			if !gone[e.node] {
				all = append(all, e)
			}
		}
	}
	for _, n := range added {
		all = append(all, entry{hashOf(n.name), n})
	}
	buckets := uint32(1) << bits.Len(uint((size-1)/bucketSize))
	next := index{mask: buckets - 1, size: size, labels: labels}
	lists := make([][]entry, (buckets+pageSize-1)/pageSize)
	for _, e := range all {
		i := next.bucketOf(e.hash) / pageSize
		lists[i] = append(lists[i], e)
	}
	for _, list := range lists {
		next.pages = append(next.pages, next.newPage(list))
	}
	return next
}
