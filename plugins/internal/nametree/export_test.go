package nametree

// all returns the nodes of the tree by name.
func (t *Tree) all() map[string]*Node {
	nodes := map[string]*Node{}
	for _, part := range t.parts {
		for _, n := range part {
			nodes[n.name] = n
		}
	}
	return nodes
}

// origins returns the origins of the tree's zones.
func (t *Tree) origins() map[string]bool {
	origins := map[string]bool{}
	for _, n := range t.all() {
		origins[n.Zone.Origin] = true
	}
	return origins
}
