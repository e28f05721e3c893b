package vip

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// A request is a request to the API server about the Lease.
type request string

const (
	noRequest request = ""
	register  request = "register" // write this replica's MAC address into the Lease
	acquire   request = "acquire"
	renew     request = "renew"
	release   request = "release"
)

// actions are what the caller must do after a method of stateMachine has returned them.
type actions struct {
	claim, drop, announce bool
	request               request
	reason                string // of claim or drop
}

// A stateMachine decides which actions a replica takes. Its methods record events and return actions. It does no I/O
// and is not safe for concurrent use.
type stateMachine struct {
	identity  string
	self      mac
	addresses []netip.Addr

	up          bool // the interface has a carrier
	upSince     time.Time
	ready       bool // the proxy is ready
	readySince  time.Time
	terminating bool // this process is terminating

	holding     bool        // this replica has the address
	since       time.Time   // when holding last changed
	confirmedAt time.Time   // when the address was last confirmed in the kernel
	transitions int         // how often holding changed
	moves       []time.Time // the last changes of holding, at most manyMoves

	leaseKnown     bool        // the Lease was read, by this process or a previous one
	lease          leaseRecord // last known content
	leaseSetAt     time.Time   // when lease was last set
	leaseChangedAt time.Time   // when a new holder or renewal was last seen
	leaseTakenAt   time.Time   // when a peer was last seen to become the holder
	watchingSince  time.Time   // since when the Lease has been watched without a gap; zero while it is not watched
	leasedUntil    time.Time   // until when this replica certainly has the Lease
	nextRequestAt  time.Time   // no request to the API server before this time
	renewAt        time.Time   // when to renew the Lease
	apiFailed      bool        // the last request to the API server failed
	droppedUnready bool        // the address was dropped because the proxy was not ready and the API server was unavailable

	answeredAt    time.Time // when a peer last answered for the address
	answeredBy    mac
	lastFrameAt   time.Time // when a frame of any other host was last received
	probes        int       // probes for the address that were sent since probesSince
	probesSince   time.Time // unansweredSince at the last probe
	defendedAt    time.Time // when a claim was last replied to
	announceUntil time.Time
	conflicts     map[string]int // claims received while holding; the keys are peer and stranger
}

// leased reports whether this replica certainly has the Lease.
func (m *stateMachine) leased(now time.Time) bool { return now.Before(m.leasedUntil) }

// peers returns the names of the other replicas by their MAC addresses.
func (m *stateMachine) peers() map[mac]string {
	peers := map[mac]string{}
	for name, address := range m.lease.macs {
		if name != m.identity && address != m.self {
			peers[address] = name
		}
	}
	return peers
}

// unansweredSince returns, for a standby replica, since when neither it nor a peer has answered for the address. The time
// begins when the interface has a carrier. A peer that has just acquired the Lease counts as if it had answered,
// because it is about to.
func (m *stateMachine) unansweredSince() time.Time {
	return latest(latest(m.since, m.leaseTakenAt), latest(m.answeredAt, m.upSince))
}

// setProbed records that a probe for the address was sent.
func (m *stateMachine) setProbed(time.Time) actions {
	if since := m.unansweredSince(); !since.Equal(m.probesSince) {
		m.probes, m.probesSince = 0, since
	}
	m.probes++
	return actions{}
}

// setTerminating records that this process is to end.
func (m *stateMachine) setTerminating(time.Time) actions {
	m.terminating = true
	return actions{}
}

// silent reports whether neither this replica nor a peer has answered for the address for d, and this replica has asked for
// that long: a process that did not get the CPU has sent no probes.
func (m *stateMachine) silent(now time.Time, d time.Duration) bool {
	since := m.unansweredSince()
	return now.Sub(since) >= d && since.Equal(m.probesSince) && m.probes >= max(2, int(d/probeInterval)-1)
}

// addressUnanswered reports whether no replica has the address: no peer has answered for d, although frames of other hosts
// arrive, so that this replica is not isolated.
func (m *stateMachine) addressUnanswered(now time.Time, d time.Duration) bool {
	return m.silent(now, d) && now.Sub(m.lastFrameAt) < patience
}

// decide returns the actions that the current state requires. Call it after each event and at each tick.
func (m *stateMachine) decide(now time.Time) actions {
	switch {
	case m.holding && !m.up:
		return m.drop(now, "the interface has no carrier")
	case m.holding:
		return m.decideHolder(now)
	default:
		return m.decideStandby(now)
	}
}

// decideHolder returns the actions of a replica that has the address.
func (m *stateMachine) decideHolder(now time.Time) actions {
	do := actions{announce: now.Before(m.announceUntil)}
	if m.leased(now) {
		switch {
		case m.terminating || !m.ready && len(m.peers()) > 0:
			do.request = m.ifDue(now, release) // and keep the address until a peer claims it
		case !now.Before(m.renewAt):
			do.request = m.ifDue(now, renew)
		}
		return do
	}
	if holder, ok := m.lease.macs[m.lease.holder]; ok && m.lease.holder != m.identity &&
		!m.watchingSince.IsZero() && m.answeredBy == holder && now.Sub(m.answeredAt) < patience {
		return m.drop(now, m.lease.holder+" has the Lease")
	}
	switch {
	case m.terminating:
	case !m.ready && m.apiFailed && !m.droppedUnready && len(m.peers()) > 0:
		m.droppedUnready = true
		return m.drop(now, "the proxy is not ready, and another replica's may be")
	case !m.ready:
	case m.lease.holder == "" || m.lease.holder == m.identity || now.Sub(m.leaseChangedAt) >= leaseDuration:
		do.request = m.ifDue(now, acquire)
	}
	return do
}

// decideStandby returns the actions of a replica that does not have the address.
func (m *stateMachine) decideStandby(now time.Time) actions {
	if m.leased(now) { // it had to drop the address
		return actions{request: m.ifDue(now, release)}
	}
	if !m.up || m.terminating {
		return actions{}
	}
	var do actions
	if m.lease.macs[m.identity] != m.self {
		do.request = m.ifDue(now, register)
	}
	if !m.leaseKnown {
		return do
	}
	if m.ready && m.leaseAvailable(now) {
		do.request = m.ifDue(now, acquire) // also registers
	}
	if m.apiFailed && m.addressUnanswered(now, patience+m.claimDelay()) {
		return m.claim(now, "no host answers for the address, and the API server is unavailable")
	}
	return do
}

// leaseAvailable reports whether a standby replica may acquire the Lease.
func (m *stateMachine) leaseAvailable(now time.Time) bool {
	silent := m.silent(now, patience)
	switch m.lease.holder {
	case m.identity: // acquired earlier; since then, a peer may have claimed the address without the API server
		return silent
	case "":
		// A peer that still answers has released the Lease and waits for a ready replica. A replica that has just
		// become ready waits first: the peer's proxy may have become ready as well, and then the address need not
		// move.
		return silent || now.Sub(m.readySince) >= patience
	}
	// A holder that restarted while the API server was down waits for leaseDuration, too, and must be the first to acquire the Lease.
	expired := !m.watchingSince.IsZero() && now.Sub(latest(m.leaseChangedAt, m.watchingSince)) >= leaseDuration+patience
	return expired || m.addressUnanswered(now, patience)
}

// claimDelay returns how long a replica waits, in addition to patience, before it claims an unanswered address while
// the API server is unavailable. Replicas with a lower MAC address and ready ones wait less, so that two do not claim
// it at the same time.
func (m *stateMachine) claimDelay() time.Duration {
	lower := 0
	for peer := range m.peers() {
		if peer.less(m.self) {
			lower++
		}
	}
	delay := alone + time.Duration(lower)*2*probeInterval
	if !m.ready {
		delay += unreadyDelay
	}
	return delay
}

// ifDue returns the request, or noRequest before nextRequestAt.
func (m *stateMachine) ifDue(now time.Time, r request) request {
	if now.Before(m.nextRequestAt) {
		return noRequest
	}
	return r
}

func (m *stateMachine) claim(now time.Time, reason string) actions {
	m.holding, m.since, m.confirmedAt, m.announceUntil = true, now, now, now.Add(announceDuration)
	m.countMove(now)
	return actions{claim: true, announce: true, reason: reason}
}

func (m *stateMachine) drop(now time.Time, reason string) actions {
	m.holding, m.since = false, now
	m.countMove(now)
	return actions{drop: true, reason: reason}
}

func (m *stateMachine) countMove(now time.Time) {
	m.transitions++
	m.moves = append(m.moves, now)
	m.moves = m.moves[max(0, len(m.moves)-manyMoves):]
}

// setConfirmed records that the caller confirms the address in the kernel, which it does at each tick while this
// replica holds the address. If this process did not run for a time, the kernel has removed the address, and a peer
// may have it; then setConfirmed drops it.
func (m *stateMachine) setConfirmed(now time.Time) actions {
	if m.holding && now.Sub(m.confirmedAt) >= addressLifetime+patience-probeInterval {
		return m.drop(now, "this process did not run for "+now.Sub(m.confirmedAt).Round(time.Millisecond).String())
	}
	m.confirmedAt = now
	return actions{}
}

// handleFrame records a received frame. It returns actions if the frame claims an address that this replica holds.
func (m *stateMachine) handleFrame(now time.Time, f parsedFrame) actions {
	if f.Sender == m.self {
		return actions{}
	}
	m.lastFrameAt = now
	if !slices.Contains(m.addresses, f.Address) {
		return actions{}
	}
	name, peer := m.peers()[f.Sender]
	by, interval := "stranger", defendStrangerInterval
	if peer {
		by, interval = "peer", defendPeerInterval
		m.answeredAt, m.answeredBy = now, f.Sender
	}
	if !m.holding {
		return actions{}
	}
	m.conflicts[by]++
	if peer && !m.leased(now) && (f.Leased || f.Sender.less(m.self)) {
		return m.drop(now, name+" claims the address")
	}
	if now.Sub(m.defendedAt) < interval {
		return actions{}
	}
	m.defendedAt = now
	return actions{announce: true}
}

// setUp records whether the interface has a carrier.
func (m *stateMachine) setUp(now time.Time, up bool) actions {
	if up && !m.up {
		m.upSince = now
	}
	m.up = up
	return actions{}
}

// setReady records whether the proxy is ready.
func (m *stateMachine) setReady(now time.Time, ready bool) actions {
	m.ready, m.readySince = ready, now
	m.droppedUnready = m.droppedUnready && !ready
	return actions{}
}

// setLease records the content of the Lease. readAt is when the request that returned it was started, or zero for a
// watch event.
func (m *stateMachine) setLease(now, readAt time.Time, r leaseRecord) {
	// An older version arrived late and is ignored, unless it was requested after the newer one was known: then etcd
	// was restored from a backup, and versions continue from the older one.
	if m.leaseKnown && r.version < m.lease.version && !readAt.After(m.leaseSetAt) {
		return
	}
	if !m.leaseKnown || r.holder != m.lease.holder || r.renewed != m.lease.renewed {
		m.leaseChangedAt = now
	}
	if r.holder != m.lease.holder && r.holder != "" && r.holder != m.identity {
		m.leaseTakenAt = now
	}
	m.leaseKnown, m.lease, m.leaseSetAt = true, r, now
	if r.holder != m.identity {
		m.leasedUntil = time.Time{}
	}
}

// setWatching records whether the Lease is being watched.
func (m *stateMachine) setWatching(now time.Time, watching bool) {
	switch {
	case !watching:
		m.watchingSince = time.Time{}
	case m.watchingSince.IsZero():
		m.watchingSince = now
	}
}

// A requestResult is the result of a request to the API server.
type requestResult struct {
	request request
	started time.Time
	lease   leaseRecord // current content; not set if err is
	granted bool        // false if a peer has the Lease
	err     error
}

// handleResult records the result of a request.
func (m *stateMachine) handleResult(now time.Time, r requestResult) actions {
	m.apiFailed = r.err != nil
	if m.apiFailed {
		m.nextRequestAt = now.Add(requestInterval)
		if r.request == release {
			m.leasedUntil = time.Time{} // the Lease is no longer renewed, and may have been released
		}
		return actions{}
	}
	m.setLease(now, r.started, r.lease)
	m.nextRequestAt = now
	if !r.granted {
		m.nextRequestAt = now.Add(requestInterval)
		return actions{}
	}
	if r.request != release && m.lease.holder != m.identity {
		return actions{} // a peer acquired the Lease later, and the watch event arrived before this reply
	}
	switch r.request {
	case release:
		m.leasedUntil = time.Time{}
	case acquire, renew:
		m.leasedUntil, m.renewAt = r.started.Add(leaseDuration), r.started.Add(renewInterval)
		if m.up && !m.holding && !m.terminating {
			return m.claim(now, "this replica has the Lease")
		}
		if r.request == acquire { // announcements now show that this replica has the Lease
			m.announceUntil = now.Add(announceDuration)
		}
	}
	return actions{}
}

// restorePeers records the replicas that a previous process knew, by name.
func (m *stateMachine) restorePeers(macs map[string]mac) {
	m.leaseKnown, m.lease.macs = true, maps.Clone(macs)
	delete(m.lease.macs, m.identity)
}

// adoptAddress records that a previous process has left the address on the interface.
func (m *stateMachine) adoptAddress(now time.Time) {
	m.holding, m.since, m.confirmedAt, m.up, m.upSince = true, now, now, true, now
}
