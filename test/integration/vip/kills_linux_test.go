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

// presence is which instances have an address on their interfaces, as their kernels report it.
type presence struct {
	address netip.Addr

	mu       sync.Mutex
	has      map[*instance]bool
	changed  time.Time
	doubled  time.Duration   // for how long more than one had it
	vacant   []time.Duration // each time that none had it
	episodes []string        // of several
}

// watch records the presence of the floating addresses until the test ends.
func watch(t *testing.T, s *site) (all []*presence) {
	t.Helper()
	for _, a := range []netip.Addr{floating, floating6} {
		all = append(all, &presence{address: a, has: map[*instance]bool{}, changed: time.Now()})
	}
	for _, i := range s.instances {
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
		if err != nil {
			t.Fatal(err)
		}
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

func (p *presence) record(i *instance, has bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.has[i] == has {
		return // it is confirmed
	}
	now := time.Now()
	switch d := now.Sub(p.changed); {
	case len(p.has) > 1:
		p.doubled += d
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

// holder waits until one instance has the address, which is another one than before.
func (p *presence) holder(t *testing.T, before *instance) (found *instance) {
	t.Helper()
	lab.Poll(t, "one instance to have "+p.address.String(), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for found = range p.has {
			return len(p.has) == 1 && found != before
		}
		return false
	})
	return found
}

// TestKilledHolderProcesses kills the process of the holder again and again, among three and among four,
// and starts it again when another one has the address. At no moment do two have it: the killed one's
// kernel removes it before another may claim it, and those that stay never both do.
func TestKilledHolderProcesses(t *testing.T) {
	for _, instances := range []int{3, 4} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, ours, instances)
			s.known(t)
			all := watch(t, s)
			holder, kills := all[0].holder(t, nil), lab.Length(1, 200)
			from := time.Now()
			for range kills {
				time.Sleep(rand.N(2 * time.Second)) // at any moment of its work
				was := holder
				was.Kill(t)
				holder = all[0].holder(t, was)
				was.Start(t)
			}
			s.settled(t)
			for _, p := range all {
				p.mu.Lock()
				var longest, total time.Duration
				for _, v := range p.vacant[1:] { // the first is before the list of addresses was read
					longest, total = max(longest, v), total+v
				}
				t.Logf("%s: %d kills in %s; none had it for %.1f s at a time and %.1f s at most; two had it for %s, and answered for %s",
					p.address, kills, time.Since(from).Round(time.Second), total.Seconds()/float64(kills), longest.Seconds(), p.doubled, s.doubled(from))
				if p.doubled > 0 || len(p.has) != 1 || len(p.vacant)-1 < kills {
					t.Errorf("%d have %s now; it was nowhere %d times; several had it:\n%v", len(p.has), p.address, len(p.vacant)-1, p.episodes)
				}
				p.mu.Unlock()
			}
		})
	}
}
