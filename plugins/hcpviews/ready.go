package hcpviews

// Ready implements ready.Readiness. It returns true when every server block has objects to answer from, even if they are
// from the snapshot file.
func (h *HCPViews) Ready() bool { return h.Loaded() }
