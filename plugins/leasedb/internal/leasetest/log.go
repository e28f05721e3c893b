// Package leasetest is for tests: a log of who was promised which address for how long, and a
// checker that no address was promised twice at a time.
package leasetest

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Log is what clients were told. Its methods are safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	records map[netip.Addr][]Interval
}

// Interval is a time in which a holder may use an address.
type Interval struct {
	Holder     string
	From, Till time.Time
}

// Granted notes an ACK: the holder may use the address until the lease's end.
func (l *Log) Granted(addr netip.Addr, holder string, at time.Time, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[netip.Addr][]Interval{}
	}
	l.records[addr] = append(l.records[addr], Interval{holder, at, at.Add(lease)})
}

// GaveUp notes that a holder uses an address no more, whatever it was promised.
func (l *Log) GaveUp(addr netip.Addr, holder string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.records[addr] {
		if r.Holder == holder && r.Till.After(at) {
			l.records[addr][i].Till = at
		}
	}
}

// Holders returns how many holders ever had an address.
func (l *Log) Holders() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := map[string]bool{}
	for _, records := range l.records {
		for _, r := range records {
			names[r.Holder] = true
		}
	}
	return len(names)
}

// Check returns an error for the first two holders that had one address at a time.
func (l *Log) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for addr, records := range l.records {
		records = slices.Clone(records)
		slices.SortStableFunc(records, func(a, b Interval) int { return a.From.Compare(b.From) })
		last := map[string]time.Time{} // by holder, until when it may use the address
		for _, r := range records {
			for holder, till := range last {
				if holder != r.Holder && till.After(r.From) {
					return fmt.Errorf("%v is %s's from %s, though it is %s's until %s",
						addr, r.Holder, r.From.Format(time.TimeOnly), holder, till.Format(time.TimeOnly))
				}
			}
			if r.Till.After(last[r.Holder]) {
				last[r.Holder] = r.Till
			}
		}
	}
	return nil
}
