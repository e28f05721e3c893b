package vip_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/densityops/oooi/test/lab"
)

// presence records which replicas have an address on their interfaces, as reported by their kernels.
type presence struct {
	address netip.Addr

	mu         sync.Mutex
	has        map[*replica]bool
	changed    time.Time
	twoHolders time.Duration   // for how long more than one replica had the address
	vacant     []time.Duration // each period in which no replica had it
	episodes   []string        // periods in which several replicas had it
}

// watch records the presence of the floating addresses until the test ends.
func watch(t *testing.T, s *site) (all []*presence) {
	t.Helper()
	for _, a := range []netip.Addr{floating, floating6} {
		all = append(all, &presence{address: a, has: map[*replica]bool{}, changed: time.Now()})
	}
	for _, i := range s.replicas {
		updates, done := make(chan netlink.AddrUpdate, 64), make(chan struct{})
		err := i.Do(func() error {
			return netlink.AddrSubscribeWithOptions(updates, done, netlink.AddrSubscribeOptions{
				ListExisting: true, ErrorCallback: func(err error) {
					select {
					case <-done:
					default:
						t.Errorf("watching the addresses of %s: %v", i.name, err)
					}
				},
			})
		})
		lab.Must(t, err)
		var reader sync.WaitGroup
		reader.Go(func() {
			for u := range updates {
				a, _ := netip.AddrFromSlice(u.LinkAddress.IP)
				for _, p := range all {
					if p.address == a.Unmap() {
						p.record(i, u.NewAddr)
					}
				}
			}
		})
		t.Cleanup(func() { close(done); reader.Wait() })
	}
	return all
}

func (p *presence) record(i *replica, has bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has[i] == has {
		return // no change
	}
	now := time.Now()
	switch d := now.Sub(p.changed); {
	case len(p.has) > 1:
		p.twoHolders += d
		p.episodes = append(p.episodes, fmt.Sprintf("%s: %d had %s for %s", now.Format(time.StampMilli), len(p.has), p.address, d))
	case len(p.has) == 0:
		p.vacant = append(p.vacant, d)
	}
	p.changed = now
	if has {
		p.has[i] = true
	} else {
		delete(p.has, i)
	}
}

// holder waits until exactly one replica has the address, and returns it. That replica must not be previous,
// which may be nil.
func (p *presence) holder(t *testing.T, previous *replica) (found *replica) {
	t.Helper()
	lab.Poll(t, "one instance to have "+p.address.String(), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for found = range p.has {
			return len(p.has) == 1 && found != previous
		}
		return false
	})
	return found
}

// TestKilledHolderProcesses repeatedly kills the holder's process, among three and among four replicas, and
// restarts it when another one has the address. Two replicas must never have it at the same time: the kernel
// of the killed one removes it before another may claim it, and the others never claim it together.
func TestKilledHolderProcesses(t *testing.T) {
	for _, replicas := range []int{3, 4} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, replicas, true)
			s.awaitPeers(t)
			all := watch(t, s)
			holder, kills := all[0].holder(t, nil), lab.Length(1, 200)
			from := time.Now()
			for range kills {
				time.Sleep(rand.N(2 * time.Second)) // at a random time
				previous := holder
				previous.Kill(t)
				holder = all[0].holder(t, previous)
				previous.Start(t)
			}
			s.awaitSingleHolder(t)
			for _, p := range all {
				p.mu.Lock()
				var longest, total time.Duration
				for _, v := range p.vacant[1:] { // the first period ends when the existing addresses are read
					longest, total = max(longest, v), total+v
				}
				t.Logf("%s: %d kills in %s; no holder for %.1f s on average and %.1f s at most; two holders for %s, and two replicas answered for %s",
					p.address, kills, time.Since(from).Round(time.Second), total.Seconds()/float64(kills), longest.Seconds(), p.twoHolders, s.TimeWithTwoHolders(from))
				if p.twoHolders > 0 || len(p.has) != 1 || len(p.vacant)-1 < kills {
					t.Errorf("%d replicas have %s; it was absent %d times; periods with several holders:\n%v", len(p.has), p.address, len(p.vacant)-1, p.episodes)
				}
				p.mu.Unlock()
			}
		})
	}
}
