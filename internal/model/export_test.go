package model

// BuildAsOneGroup is Build without the division of objects into groups.
func BuildAsOneGroup(in *Objects, options Options) *Snapshot {
	b := NewBuilder(options, nil)
	b.previous.lastGood, b.previous.lastServices = in.LastGood, in.LastServices
	u := b.newUpdate(in.Additions())
	u.build(&group{members: u.queue})
	return u.merge()
}
