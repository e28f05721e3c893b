package vip

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/problem"
)

const (
	// maxPause is the longest time between two frames of a host that answers probes.
	maxPause = 5 * time.Second
	// maxAnswers limits the hosts that are remembered for an address: a host can send any number of MAC addresses.
	maxAnswers = 8
)

// answers are the hosts that have answered for each probed address, by MAC address.
type answers map[netip.Addr]map[mac]problem.Answer

// newAnswers returns the empty answers for addresses.
func newAnswers(addresses []netip.Addr) answers {
	a := answers{}
	for _, address := range addresses {
		a[address] = map[mac]problem.Answer{}
	}
	return a
}

// record records a received frame.
func (a answers) record(now time.Time, f parsedFrame) {
	hosts, probed := a[f.Address]
	if !probed {
		return
	}
	h, known := hosts[f.Sender]
	if !known && len(hosts) == maxAnswers {
		delete(hosts, slices.MinFunc(slices.Collect(maps.Keys(hosts)), func(x, y mac) int { return hosts[x].Last.Compare(hosts[y].Last) }))
	}
	if !known || now.Sub(h.Last) > maxPause {
		h = problem.Answer{Address: f.Address, MAC: f.Sender.String(), First: now}
	}
	h.Last = now
	hosts[f.Sender] = h
}

// list returns the hosts that answer, and have done so for a time without a pause of more than maxPause, sorted by address and MAC
// address.
func (a answers) list(now time.Time, atLeast time.Duration) []problem.Answer {
	var list []problem.Answer
	for _, hosts := range a {
		for _, h := range hosts {
			if now.Sub(h.Last) <= maxPause && h.Last.Sub(h.First) >= atLeast {
				list = append(list, h)
			}
		}
	}
	slices.SortFunc(list, func(x, y problem.Answer) int { return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.MAC, y.MAC)) })
	return list
}
