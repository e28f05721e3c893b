package nametree

// all returns the nodes of the tree by name.
func (t *Tree) all() map[string]*Node {
	nodes := map[string]*Node{}
	for _, p := range t.index.pages {
		for _, e := range p.entries {
			nodes[e.node.name] = e.node
		}
	}
	return nodes
}
