package vip

import (
	"bytes"
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/densityops/oooi/internal/problem"
)

const (
	// answerMemory is how long the answer of a host is reported.
	answerMemory = 30 * time.Second
	// maxPause is the longest time between two frames of a host that answers probes.
	maxPause = 5 * time.Second
	// maxAnswers limits the hosts that are remembered for an address: a host can send any number of MAC addresses.
	maxAnswers = 8
)

// period is the time of the first and the last frame of a host, and since that of the first after which there was no pause of
// more than maxPause.
type period struct{ first, since, last time.Time }

// answers are the MAC addresses that have answered for each address that is probed.
type answers map[netip.Addr]map[mac]period

// newAnswers returns answers for addresses.
func newAnswers(addresses []netip.Addr) answers {
	a := answers{}
	for _, address := range addresses {
		a[address] = map[mac]period{}
	}
	return a
}

// record records a received frame.
func (a answers) record(now time.Time, f parsedFrame) {
	hosts, probed := a[f.Address]
	if !probed {
		return
	}
	p, known := hosts[f.Sender]
	if !known && len(hosts) == maxAnswers {
		delete(hosts, slices.MinFunc(slices.Collect(maps.Keys(hosts)), func(x, y mac) int { return hosts[x].last.Compare(hosts[y].last) }))
	}
	if !known || now.Sub(p.last) > answerMemory {
		p.first = now
	}
	if !known || now.Sub(p.last) > maxPause {
		p.since = now
	}
	p.last = now
	hosts[f.Sender] = p
}

// list returns the hosts that have answered within answerMemory, sorted by address and MAC address.
func (a answers) list(now time.Time) []problem.Answer {
	var list []problem.Answer
	for address, hosts := range a {
		for host, p := range hosts {
			if now.Sub(p.last) <= answerMemory {
				list = append(list, problem.Answer{Address: address, MAC: host.String(), First: p.first, Last: p.last})
			}
		}
	}
	slices.SortFunc(list, func(x, y problem.Answer) int { return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.MAC, y.MAC)) })
	return list
}

// steadyAnswers returns the answers of hosts that have answered for minShared without a pause, except for the given addresses.
func (a answers) steadyAnswers(now time.Time, except []netip.Addr) []problem.Answer {
	return slices.DeleteFunc(a.list(now), func(h problem.Answer) bool {
		host, _ := parseMAC(h.MAC)
		return slices.Contains(except, h.Address) || !slices.Contains(a.steady(now, h.Address), host)
	})
}

// steady returns the hosts that have answered for an address for minShared without a pause, sorted.
func (a answers) steady(now time.Time, address netip.Addr) []mac {
	var list []mac
	for host, p := range a[address] {
		if now.Sub(p.last) <= maxPause && p.last.Sub(p.since) >= minShared {
			list = append(list, host)
		}
	}
	slices.SortFunc(list, func(x, y mac) int { return bytes.Compare(x[:], y[:]) })
	return list
}
