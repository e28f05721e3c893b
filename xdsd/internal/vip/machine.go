package vip

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// Times that are nobody's to set.
const (
	// unreadyDelay is for how long one that is not ready leaves a claim to those that are.
	unreadyDelay = 10 * time.Second
	// announceFor is for how long a new holder announces itself: neighbours keep what they have
	// learnt for a second, whatever they hear.
	announceFor = 5 * time.Second
	// A claim is answered by an announcement, at most this often: a peer's soon, since only one of
	// the two may stay; anybody else's seldom, since that is somebody who can send as many as he
	// likes.
	defendPeerGap     = 100 * time.Millisecond
	defendStrangerGap = time.Second
	// askGap is the shortest time between two requests that the API server did not grant.
	askGap = time.Second
)

// request is one to the API server.
type request string

const (
	nothing  request = ""
	register request = "register" // write our MAC address into the Lease
	take     request = "take"
	renew    request = "renew"
	release  request = "release"
)

// todo is what follows from what happened.
type todo struct {
	claim, drop, announce bool
	ask                   request
	why                   string // of claim and drop
}

// machine decides. Every method says what is to be done now.
type machine struct {
	Timing

	identity  string
	self      mac
	addresses []netip.Addr

	up      bool // the interface has a carrier
	upSince time.Time
	ready   bool // the proxy is
	ending  bool // we are

	readySince time.Time

	holding     bool
	since       time.Time // of holding
	transitions int       // how often that changed

	known       bool      // that is, the Lease was read, be it by a former process
	lease       record    // as it was seen last
	learnt      time.Time // when that was
	changed     time.Time // when its holder was seen to do something
	taken       time.Time // when a peer was seen to become its holder
	following   time.Time // since when it is followed without a gap; zero while it is not
	leasedUntil time.Time // we have it until then
	askAt       time.Time // not before is the API server asked again that did not grant something
	renewAt     time.Time
	failed      bool // it did not answer the last time
	offered     bool // dropped for not being ready, without the API server

	answered     time.Time // when a peer last said that the address is its own
	answeredBy   mac
	anybody      time.Time // when anybody was heard
	defended     time.Time
	announceTill time.Time
	conflicts    map[string]int // claims heard while holding, by who: peer or stranger
}

// leased reports whether we have the Lease, for sure.
func (m *machine) leased(now time.Time) bool { return now.Before(m.leasedUntil) }

// peers are the other instances by their MAC addresses.
func (m *machine) peers() map[mac]string {
	peers := map[mac]string{}
	for name, address := range m.lease.macs {
		if name != m.identity && address != m.self {
			peers[address] = name
		}
	}
	return peers
}

// quiet is for how long neither we nor a peer has answered for the address, as far as we could
// hear. A peer that has just taken the Lease counts as one that answers: it is about to. It is for
// those who do not hold the address.
func (m *machine) quiet(now time.Time) time.Duration {
	return now.Sub(latest(latest(m.since, m.taken), latest(m.answered, m.upSince)))
}

// unanswered reports whether nobody holds the address: no peer answers for it, and it is not us
// who are cut off, for somebody else is heard.
func (m *machine) unanswered(now time.Time) bool {
	return m.quiet(now) >= m.Patience && now.Sub(m.anybody) < m.Patience
}

// decide is asked after everything that happened, and every now and then.
func (m *machine) decide(now time.Time) todo {
	switch {
	case m.holding && !m.up:
		return m.drop(now, "the interface has no carrier")
	case m.holding:
		return m.hold(now)
	default:
		return m.standBy(now)
	}
}

// hold is what a holder does.
func (m *machine) hold(now time.Time) todo {
	do := todo{announce: now.Before(m.announceTill)}
	if m.leased(now) {
		switch {
		case m.ending || !m.ready && len(m.peers()) > 0:
			do.ask = m.asking(now, release) // and stay until a peer claims it
		case !now.Before(m.renewAt):
			do.ask = m.asking(now, renew)
		}
		return do
	}
	if holder, ok := m.lease.macs[m.lease.holder]; ok && m.lease.holder != m.identity &&
		!m.following.IsZero() && m.answeredBy == holder && now.Sub(m.answered) < m.Patience {
		return m.drop(now, m.lease.holder+" has the Lease")
	}
	switch {
	case m.ending:
	case !m.ready && m.failed && !m.offered && len(m.peers()) > 0:
		m.offered = true
		return m.drop(now, "the proxy is not ready, and another replica's may be")
	case !m.ready:
	case m.lease.holder == "" || m.lease.holder == m.identity || now.Sub(m.changed) >= m.LeaseDuration:
		do.ask = m.asking(now, take)
	}
	return do
}

// standBy is what the others do.
func (m *machine) standBy(now time.Time) todo {
	if m.leased(now) { // and had to drop the address
		return todo{ask: m.asking(now, release)}
	}
	if !m.up || m.ending {
		return todo{}
	}
	var do todo
	if m.lease.macs[m.identity] != m.self {
		do.ask = m.asking(now, register)
	}
	if !m.known {
		return do
	}
	if m.ready && m.vacant(now) {
		do.ask = m.asking(now, take) // which registers, too
	}
	if m.failed && m.unanswered(now) && m.quiet(now) >= m.Patience+m.alone() {
		return m.claim(now, "no host answers for the address, and the API server is away")
	}
	return do
}

// vacant reports whether the Lease is there to be taken by one that does not hold the address.
func (m *machine) vacant(now time.Time) bool {
	silent := m.quiet(now) >= m.Patience
	switch m.lease.holder {
	case m.identity: // from before; meanwhile it may be at a peer that could not write so
		return silent
	case "":
		// A peer that answers offers it. Who has just become ready leaves it to that peer, who
		// may have, too.
		return silent || now.Sub(m.readySince) >= m.Patience
	}
	expired := !m.following.IsZero() && now.Sub(latest(m.changed, m.following)) >= m.LeaseDuration
	return expired || m.unanswered(now)
}

// alone is for how long an address that nobody answers for is left to others when the API server
// is away: those with a lower MAC address, and those that are ready.
func (m *machine) alone() time.Duration {
	before := 0
	for peer := range m.peers() {
		if peer.before(m.self) {
			before++
		}
	}
	wait := m.Alone + time.Duration(before)*2*m.ProbeInterval
	if !m.ready {
		wait += unreadyDelay
	}
	return wait
}

// asking is the request, if it is time for one.
func (m *machine) asking(now time.Time, r request) request {
	if now.Before(m.askAt) {
		return nothing
	}
	return r
}

func (m *machine) claim(now time.Time, why string) todo {
	m.holding, m.since, m.announceTill = true, now, now.Add(announceFor)
	m.transitions++
	return todo{claim: true, announce: true, why: why}
}

func (m *machine) drop(now time.Time, why string) todo {
	m.holding, m.since = false, now
	m.transitions++
	return todo{drop: true, why: why}
}

// hear takes note of a frame.
func (m *machine) hear(now time.Time, h heard) todo {
	if h.By == m.self {
		return todo{}
	}
	m.anybody = now
	if !slices.Contains(m.addresses, h.Address) {
		return todo{}
	}
	name, peer := m.peers()[h.By]
	who, gap := "stranger", defendStrangerGap
	if peer {
		who, gap = "peer", defendPeerGap
		m.answered, m.answeredBy = now, h.By
	}
	if !m.holding {
		return todo{}
	}
	m.conflicts[who]++
	if peer && !m.leased(now) && (h.Leased || h.By.before(m.self)) {
		return m.drop(now, name+" claims it")
	}
	if now.Sub(m.defended) < gap {
		return todo{}
	}
	m.defended = now
	return todo{announce: true}
}

// setUp takes note of the interface.
func (m *machine) setUp(now time.Time, up bool) {
	if up && !m.up {
		m.upSince = now
	}
	m.up = up
}

// setReady takes note of the proxy.
func (m *machine) setReady(now time.Time, ready bool) {
	m.ready, m.readySince = ready, now
	m.offered = m.offered && !ready
}

// see takes note of the Lease, as the API server had it when it was asked or later. The zero time
// is for one that does not know when.
func (m *machine) see(now, asked time.Time, r record) {
	// An older Lease is late news, unless it was asked for after the newer one was known: then the
	// API server's data were restored from a backup, and versions begin anew from there.
	if m.known && r.version < m.lease.version && !asked.After(m.learnt) {
		return
	}
	if !m.known || r.holder != m.lease.holder || r.renewed != m.lease.renewed {
		m.changed = now
	}
	if r.holder != m.lease.holder && r.holder != "" && r.holder != m.identity {
		m.taken = now
	}
	m.known, m.lease, m.learnt = true, r, now
	if r.holder != m.identity {
		m.leasedUntil = time.Time{}
	}
}

// follow takes note of whether changes of the Lease are seen.
func (m *machine) follow(now time.Time, following bool) {
	switch {
	case !following:
		m.following = time.Time{}
	case m.following.IsZero():
		m.following = now
	}
}

// outcome is what became of a request.
type outcome struct {
	request request
	started time.Time
	lease   record // as it is now, unless there is an error
	granted bool   // false where somebody else was faster
	err     error
}

// done takes note of an outcome.
func (m *machine) done(now time.Time, o outcome) todo {
	m.failed = o.err != nil
	if m.failed {
		m.askAt = now.Add(askGap)
		if o.request == release {
			m.leasedUntil = time.Time{} // it is not renewed either
		}
		return todo{}
	}
	m.see(now, o.started, o.lease)
	m.askAt = now
	if !o.granted {
		m.askAt = now.Add(askGap)
		return todo{}
	}
	if o.request != release && m.lease.holder != m.identity {
		return todo{} // a peer took the Lease later, and that news came before this reply
	}
	switch o.request {
	case release:
		m.leasedUntil = time.Time{}
	case take, renew:
		m.leasedUntil, m.renewAt = o.started.Add(m.LeaseDuration), o.started.Add(m.RenewInterval)
		if m.up && !m.holding && !m.ending {
			return m.claim(now, "it has the Lease")
		}
		if o.request == take { // others are to know that we have it
			m.announceTill = now.Add(announceFor)
		}
	}
	return todo{}
}

// recall takes note of the instances that a former process knew.
func (m *machine) recall(macs map[string]mac) {
	m.known, m.lease.macs = true, maps.Clone(macs)
	delete(m.lease.macs, m.identity)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// adopt takes note that a former process has left the address here.
func (m *machine) adopt(now time.Time) { m.holding, m.since, m.up, m.upSince = true, now, true, now }
