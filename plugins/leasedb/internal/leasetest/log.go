// Package leasetest contains helpers for tests: a contract test of stores, and a log of granted leases that detects
// addresses leased to two holders at a time.
package leasetest

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Log contains the leases that clients were granted. Its methods are safe for concurrent use.
type Log struct {
	mu      sync.Mutex
	records map[netip.Addr][]Interval
}

// An Interval is a period in which a holder may use an address.
type Interval struct {
	Holder     string
	From, Till time.Time
}

// Granted records an ACK: the holder may use the address until the end of the lease.
func (l *Log) Granted(addr netip.Addr, holder string, at time.Time, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.records == nil {
		l.records = map[netip.Addr][]Interval{}
	}
	l.records[addr] = append(l.records[addr], Interval{holder, at, at.Add(lease)})
}

// GaveUp records that a holder stopped using an address before the end of its lease.
func (l *Log) GaveUp(addr netip.Addr, holder string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.records[addr] {
		if r.Holder == holder && r.Till.After(at) {
			l.records[addr][i].Till = at
		}
	}
}

// Holders returns the number of holders that had an address at any time.
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

// Check returns an error that describes one address that two holders had at the same time, or nil.
func (l *Log) Check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for addr, records := range l.records {
		records = slices.Clone(records)
		slices.SortStableFunc(records, func(a, b Interval) int { return a.From.Compare(b.From) })
		last := map[string]time.Time{} // end of the lease, by holder
		for _, r := range records {
			for holder, till := range last {
				if holder != r.Holder && till.After(r.From) {
					return fmt.Errorf("%v was leased to %s from %s, but to %s until %s",
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
