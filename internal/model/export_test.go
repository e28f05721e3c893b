package model

// BuildAsOneGroup is Build without the division of objects into groups.
func BuildAsOneGroup(in *Objects, options Options) *Snapshot {
	b := NewBuilder(options, nil)
	b.previous.lastGood, b.previous.lastServices = in.LastGood, in.LastServices
	u := b.newUpdate()
	for _, c := range in.Additions() {
		u.apply(c)
	}
	u.updateManagement()
	g := &group{members: u.queue}
	u.build(g)
	u.built = []*group{g}
	return u.merge()
}
