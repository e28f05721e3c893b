package nametree

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
)

// TestNextEqualsNew replaces parts of a tree at random. Each tree must answer like one that is built from all parts at
// once, and share the nodes of unchanged parts with its predecessor.
func TestNextEqualsNew(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	ttls := TTLs{ControlPlane: 30, Apps: 30}
	part := func(cluster, version int) *model.View {
		domain := fmt.Sprintf("c%d.example.com", cluster)
		text := fmt.Sprintf("zone %[1]s\nname ns.dns.%[1]s 192.0.2.2\nname api.%[1]s 192.0.2.%[2]d\napps apps.%[1]s at 198.51.100.%[2]d", domain, version%256)
		for i := range version % 5 {
			text += fmt.Sprintf("\nname x%d.y.%s 192.0.2.%d", i, domain, version%256)
		}
		if version%7 == 0 { // many labels, and a hostname outside of the domain
			text += "\nname " + strings.Repeat("l.", 20) + domain + " 192.0.2.1" + fmt.Sprintf("\nzone h%d.example.org of %s\nname h%[1]d.example.org 192.0.2.9", cluster, domain)
		}
		return viewOf(t, strings.ReplaceAll(text, "a.example.com", domain))
	}
	parts := map[int]*model.View{}
	var tree *Tree
	var views []*model.View
	next := func(previous *Tree, before, now []*model.View, serial int) *Tree {
		identity := func(view *model.View) *model.View { return view }
		return Next(previous, before, Parts[*model.View, *model.View]{now, identity, identity}, ttls, uint32(serial))
	}
	var beforeNames map[string]*Node
	for version := range 80 {
		before := map[*model.View]*nodes{}
		if tree != nil {
			for i, view := range views {
				before[view] = tree.parts[i]
			}
		}
		for range random.IntN(3) + version/40*random.IntN(60) { // grows, and shrinks again below
			cluster := random.IntN(150)
			parts[cluster] = part(cluster, version)
		}
		for cluster := range parts {
			if random.IntN(20) == 0 || version > 60 && random.IntN(3) == 0 {
				delete(parts, cluster)
			}
		}
		old, oldViews := tree, views
		views = nil
		for cluster := range 150 {
			if v := parts[cluster]; v != nil {
				views = append(views, v)
			}
		}
		tree = next(old, oldViews, views, version)
		fresh := next(nil, nil, views, 1)
		if got, want := len(tree.all()), len(fresh.all()); got != want || tree.index.size != want {
			t.Fatalf("version %d: %d names, %d in the index, want %d", version, got, tree.index.size, want)
		}
		type result struct {
			name, zone string
			a          [4]byte
			ttl        uint32
			exact      bool
		}
		found := func(tree *Tree, qname string) result {
			if n, exact := tree.Lookup(qname); n != nil {
				return result{n.name, n.Zone.Origin, n.a, n.ttl, exact}
			}
			return result{}
		}
		for name := range fresh.all() {
			for _, qname := range []string{name + ".", strings.ToUpper(name) + ".", "q." + name + ".", `q\.` + name + "."} {
				if got, want := found(tree, qname), found(fresh, qname); got != want {
					t.Fatalf("version %d: %s is %+v, want %+v", version, qname, got, want)
				}
			}
		}
		for name, n := range beforeNames {
			if got, exact := old.Lookup(name + "."); got != n || !exact {
				t.Fatalf("version %d: the previous tree has lost %s", version, name)
			}
		}
		beforeNames = tree.all()
		for i, view := range views {
			if part := before[view]; part != nil && part != tree.parts[i] {
				t.Fatalf("version %d: the nodes of an unchanged part are not shared", version)
			}
		}
	}
}
