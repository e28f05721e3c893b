package vip

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/densityops/oooi/test/lab"
)

// A simulation has several replicas with the real state machine, and a simulated clock, VLAN and API server. The VLAN
// can be partitioned in two sides, and the API server can be unreachable for some replicas. Requests, replies and watch
// events have random latencies.
type simulation struct {
	now      time.Time
	random   *rand.Rand
	lease    *coordinationv1.Lease
	backup   *coordinationv1.Lease
	replicas []*replica
	events   []event // future events, unsorted
	log      []string
}

// An event calls a function at a future time.
type event struct {
	at  time.Time
	run func()
}

// A replica is a simulated replica of the proxy.
type replica struct {
	*stateMachine

	client         *leaseClient
	running        bool
	side           int       // side of the VLAN, 0 or 1
	apiReachable   bool      // it can reach the API server
	hasAddress     bool      // the kernel has the address, even after the process has ended
	expires        time.Time // when the kernel removes the address
	nextTick       time.Time
	requestPending bool
	process        int       // number of the current process; events for previous ones are dropped
	stalledUntil   time.Time // the process does not get the CPU before this time; what it receives waits
	waiting        []func()  // what it has received meanwhile
	watchedVersion string    // resourceVersion of the last watch event that was scheduled; empty while it does not watch
	watchEventAt   time.Time // when the last scheduled watch event arrives; later ones arrive after it
}

const step = 10 * time.Millisecond

func newSimulation(seed uint64, replicas int) *simulation {
	s := &simulation{now: start, random: rand.New(rand.NewPCG(seed, 1)), lease: &coordinationv1.Lease{}}
	s.lease.ResourceVersion = "1"
	for n := range replicas {
		i := &replica{apiReachable: true}
		i.client = &leaseClient{identity: fmt.Sprint("proxy-", n), self: mac{2, 0, 0, 0, 0, byte(n + 1)}}
		s.replicas = append(s.replicas, i)
		s.start(i, nil)
	}
	return s
}

// start starts a replica's process. macs is the content of its state file, and nil if it has none.
func (s *simulation) start(i *replica, macs map[string]mac) {
	i.stateMachine = &stateMachine{identity: i.client.identity, self: i.client.self, addresses: []netip.Addr{test4}, ready: true, conflicts: map[string]int{}}
	i.running, i.requestPending, i.watchedVersion = true, false, ""
	i.stalledUntil, i.waiting = time.Time{}, nil
	i.process++
	if macs != nil {
		i.restorePeers(macs)
	}
	if i.hasAddress {
		i.adoptAddress(s.now)
	}
	i.nextTick = s.now.Add(time.Duration(s.random.IntN(500)) * time.Millisecond)
}

// broadcast delivers a frame to the other running replicas on the same side of the VLAN for which receives returns
// true.
func (s *simulation) broadcast(from *replica, f parsedFrame, receives func(*replica) bool) {
	for _, i := range s.replicas {
		if i != from && i.running && i.up && i.side == from.side && from.up && receives(i) {
			s.deliver(i, func() { s.perform(i, i.handleFrame(s.now, f)) })
		}
	}
}

func everyReplica(*replica) bool { return true }

// deliver delivers something to a replica's process when it runs.
func (s *simulation) deliver(i *replica, run func()) {
	if !s.stalled(i) {
		run()
		return
	}
	process := i.process
	i.waiting = append(i.waiting, func() {
		if i.process == process {
			run()
		}
	})
}

func (s *simulation) stalled(i *replica) bool { return s.now.Before(i.stalledUntil) }

// resume delivers a part of what has waited: the process handles its channels in random order.
func (s *simulation) resume(i *replica) {
	for n := s.random.IntN(len(i.waiting) + 1); n > 0 && len(i.waiting) > 0; n-- {
		first := i.waiting[0]
		i.waiting = i.waiting[1:]
		first()
	}
}

// perform carries out a replica's actions.
func (s *simulation) perform(i *replica, do actions) {
	switch {
	case do.claim:
		s.logf("%s claims: %s", i.identity, do.reason)
		i.hasAddress, i.expires = true, s.now.Add(addressLifetime)
	case do.drop:
		s.logf("%s drops: %s", i.identity, do.reason)
		i.hasAddress = false
	}
	if do.announce {
		s.broadcast(i, parsedFrame{Sender: i.self, Address: test4, Leased: i.leased(s.now)}, everyReplica)
	}
	if do.request != noRequest && !i.requestPending {
		s.request(i, do.request)
	}
}

// request schedules the execution of a request by the API server after one latency, and the arrival of the reply after
// another. If the API server is unreachable or the reply is lost, the replica gets an error after requestDeadline; in
// the second case the Lease was written nevertheless.
func (s *simulation) request(i *replica, r request) {
	i.requestPending = true
	result, observed := requestResult{request: r, started: s.now}, i.lease
	s.after(i, s.latency(), func() {
		if !i.apiReachable {
			s.after(i, requestDeadline, func() {
				s.reply(i, requestResult{request: r, started: result.started, err: fmt.Errorf("unreachable")})
			})
			return
		}
		next := s.lease.DeepCopy()
		if err := i.client.modify(next, r, observed, result.started); err == nil {
			result.granted = true
			s.write(next)
		}
		result.lease = newLeaseRecord(s.lease)
		s.logf("%s requests %s, granted: %t", i.identity, r, result.granted)
		if s.random.IntN(50) == 0 {
			s.logf("the reply to %s is lost", i.identity)
			s.after(i, requestDeadline, func() {
				s.reply(i, requestResult{request: r, started: result.started, err: fmt.Errorf("no reply")})
			})
			return
		}
		s.after(i, s.latency(), func() { s.reply(i, result) })
	})
}

// reply delivers the result of a request to a replica.
func (s *simulation) reply(i *replica, result requestResult) {
	i.requestPending = false
	if result.err != nil && !i.apiReachable {
		i.setWatching(s.now, false)
		i.watchedVersion = ""
	}
	s.perform(i, i.handleResult(s.now, result))
}

// write replaces the Lease on the API server and increments its version.
func (s *simulation) write(next *coordinationv1.Lease) {
	version, _ := strconv.Atoi(s.lease.ResourceVersion)
	next.ResourceVersion = strconv.Itoa(version + 1)
	s.lease = next
}

// latency returns a random latency of a request, a reply or a watch event.
func (s *simulation) latency() time.Duration {
	if s.random.IntN(10) == 0 {
		return time.Duration(s.random.IntN(1500)) * time.Millisecond
	}
	return time.Duration(s.random.IntN(50)) * time.Millisecond
}

// after calls a function after a delay, if the replica's current process still runs then.
func (s *simulation) after(i *replica, d time.Duration, run func()) {
	process := i.process
	s.events = append(s.events, event{s.now.Add(d), func() {
		if i.running && i.process == process {
			s.deliver(i, run)
		}
	}})
}

// runEvents runs all events that are due. Events can add events.
func (s *simulation) runEvents() {
	for n := 0; n < len(s.events); n++ {
		if e := s.events[n]; !s.now.Before(e.at) {
			s.events = slices.Delete(s.events, n, n+1)
			n--
			e.run()
		}
	}
}

// watchLease schedules a watch event for a replica if the Lease has changed.
func (s *simulation) watchLease(i *replica) {
	if !i.apiReachable || i.watchedVersion == s.lease.ResourceVersion {
		return
	}
	readAt := time.Time{}
	if i.watchedVersion == "" {
		readAt = s.now
	}
	i.watchedVersion = s.lease.ResourceVersion
	i.watchEventAt = latest(i.watchEventAt, s.now.Add(s.latency()))
	r := newLeaseRecord(s.lease)
	s.after(i, i.watchEventAt.Sub(s.now), func() {
		i.setWatching(s.now, true)
		i.setLease(s.now, readAt, r)
	})
}

// step advances the clock by one step.
func (s *simulation) step() {
	s.now = s.now.Add(step)
	s.runEvents()
	for _, i := range s.replicas {
		if i.hasAddress && s.now.After(i.expires) {
			i.hasAddress = false // removed by the kernel
		}
		if !i.running || s.stalled(i) {
			continue
		}
		s.resume(i)
		s.watchLease(i)
		ticked := !s.now.Before(i.nextTick)
		if ticked {
			i.nextTick = s.now.Add(probeInterval)
			i.setUp(s.now, true)
			s.perform(i, i.setConfirmed(s.now))
			if i.holding {
				i.hasAddress, i.expires = true, s.now.Add(addressLifetime)
			}
			s.probe(i)
			i.setProbed(time.Time{})
		}
		do := i.decide(s.now)
		do.announce = do.announce && (ticked || do.claim)
		s.perform(i, do)
	}
}

// probe delivers a replica's probe and, after a step, the replies of the kernels that have the address. Each side also has a VM, whose
// frames show replicas that they are not isolated.
func (s *simulation) probe(i *replica) {
	s.perform(i, i.handleFrame(s.now, parsedFrame{Sender: tenantMAC}))
	s.broadcast(i, parsedFrame{Sender: i.self}, everyReplica)
	for _, other := range s.replicas {
		if other != i && other.hasAddress && other.side == i.side && (other.up || !other.running) {
			f := parsedFrame{Sender: other.self, Address: test4}
			s.after(i, step, func() { s.perform(i, i.handleFrame(s.now, f)) })
		}
	}
}

func (s *simulation) logf(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%6.2f ", s.now.Sub(start).Seconds())+fmt.Sprintf(format, args...))
}

// duplicated returns whether two replicas on the same side of the VLAN have the address.
func (s *simulation) duplicated() bool {
	sides := map[int]int{}
	for _, i := range s.replicas {
		if i.hasAddress {
			sides[i.side]++
		}
	}
	return sides[0] > 1 || sides[1] > 1
}

// injectFault causes or ends a random fault.
func (s *simulation) injectFault() {
	i := s.replicas[s.random.IntN(len(s.replicas))]
	if s.backup == nil || s.random.IntN(4) == 0 {
		s.backup = s.lease.DeepCopy()
	}
	switch s.random.IntN(10) {
	case 0:
		i.apiReachable = !i.apiReachable
		s.logf("%s reaches the API server: %t", i.identity, i.apiReachable)
	case 1:
		away := s.random.IntN(2) == 0
		for _, i := range s.replicas {
			i.apiReachable = !away
		}
		s.logf("the API server is unavailable: %t", away)
	case 2:
		i.side = 1 - i.side
		s.logf("%s is on side %d", i.identity, i.side)
	case 3, 4:
		if i.running {
			i.running = false
			s.logf("%s is killed", i.identity)
		} else {
			s.start(i, i.lease.macs)
			s.logf("%s is started", i.identity)
		}
	case 5, 6:
		i.setReady(s.now, !i.ready)
		s.logf("%s is ready: %t", i.identity, i.ready)
	case 7:
		s.logf("etcd is restored from a backup of version %s", s.backup.ResourceVersion)
		s.lease = s.backup.DeepCopy()
		for _, i := range s.replicas { // the restart of the API server ends all watches
			i.watchedVersion = ""
		}
	case 9:
		i.stalledUntil = s.now.Add(time.Duration(s.random.IntN(15000)) * time.Millisecond)
		s.logf("%s does not get the CPU for %s", i.identity, i.stalledUntil.Sub(s.now))
	case 8:
		name := "proxy-" + fmt.Sprint(s.random.IntN(len(s.replicas)))
		s.logf("a tenant claims the address with the MAC address of %s", name)
		for _, victim := range s.replicas {
			if address := victim.lease.macs[name]; victim.running && victim.side == i.side && address != victim.self {
				f := parsedFrame{Sender: address, Address: test4, Leased: s.random.IntN(2) == 0}
				s.deliver(victim, func() { s.perform(victim, victim.handleFrame(s.now, f)) })
			}
		}
	}
}

// endFaults ends all faults.
func (s *simulation) endFaults() {
	s.logf("all faults end")
	for _, i := range s.replicas {
		i.apiReachable, i.side, i.stalledUntil = true, 0, time.Time{}
		if !i.running {
			s.start(i, i.lease.macs)
		}
		if !i.ready {
			i.setReady(s.now, true)
		}
	}
}

// run runs the simulation for d. It returns the longest time for which two replicas on the same side had the address.
func (s *simulation) run(d time.Duration) (longest time.Duration) {
	var current time.Duration
	for end := s.now.Add(d); s.now.Before(end); {
		s.step()
		if current += step; !s.duplicated() {
			current = 0
		}
		longest = max(longest, current)
	}
	return longest
}

// TestAtMostOneHolder injects a hundred random faults. Two replicas must never have the address for longer
// than a holder considers the Lease its own, and exactly one must have it after all faults have ended.
func TestAtMostOneHolder(t *testing.T) {
	var worst time.Duration
	for seed := range lab.Length[uint64](40, 150) {
		s := newSimulation(seed, 2+int(seed%3))
		for range 100 {
			longest := s.run(time.Duration(s.random.IntN(12000)) * time.Millisecond)
			worst = max(worst, longest)
			if longest > leaseDuration+probeInterval {
				t.Fatalf("seed %d: two replicas had the address for %s\n%s", seed, longest, s.tail())
			}
			s.injectFault()
		}
		s.endFaults()
		if longest := s.run(30 * time.Second); longest > leaseDuration+probeInterval {
			t.Fatalf("seed %d: two replicas had the address for %s\n%s", seed, longest, s.tail())
		}
		transitions := s.transitions()
		for range 1000 {
			s.step()
			holders := 0
			for _, i := range s.replicas {
				if i.hasAddress && i.holding && i.leased(s.now) {
					holders++
				}
			}
			if holders != 1 || s.duplicated() || s.transitions() != transitions {
				t.Fatalf("seed %d: %d replicas have the address and the Lease, two have the address: %t, it moved: %t\n%s",
					seed, holders, s.duplicated(), s.transitions() != transitions, s.tail())
			}
		}
	}
	t.Logf("two replicas had the address for %s at most", worst)
}

// TestKilledHolder kills the holder of three and four replicas repeatedly, while the others do not get the CPU for some
// time. Two replicas must never have the address at the same time.
func TestKilledHolder(t *testing.T) {
	for _, replicas := range []int{3, 4} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			for seed := range lab.Length[uint64](50, 200) {
				s := newSimulation(seed, replicas)
				for range 4 {
					s.run(30 * time.Second)
					holder := s.holder()
					if holder == nil {
						t.Fatalf("seed %d: no replica holds the address\n%s", seed, s.tail())
					}
					for _, i := range s.replicas { // a busy node: until some time before or after the kernel removes the address
						i.stalledUntil = s.now.Add(time.Duration(s.random.IntN(6000)) * time.Millisecond)
					}
					holder.running = false
					s.logf("%s is killed", holder.identity)
					if longest := s.run(20 * time.Second); longest > 0 {
						t.Fatalf("seed %d: two replicas had the address for %s\n%s", seed, longest, s.tail())
					}
					s.start(holder, holder.lease.macs)
					s.logf("%s is started", holder.identity)
				}
			}
		})
	}
}

// holder returns the replica that holds the address, or nil.
func (s *simulation) holder() *replica {
	for _, i := range s.replicas {
		if i.hasAddress && i.holding {
			return i
		}
	}
	return nil
}

// transitions returns the sum of the transitions of all replicas.
func (s *simulation) transitions() int {
	n := 0
	for _, i := range s.replicas {
		n += i.transitions
	}
	return n
}

// tail returns the last 60 lines of the log.
func (s *simulation) tail() string {
	text := ""
	for _, line := range s.log[max(0, len(s.log)-60):] {
		text += line + "\n"
	}
	return text
}
