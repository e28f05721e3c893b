package vip

import "time"

const (
	// leaseDuration is the duration of the Lease: another replica can acquire it if it has seen no renewal for this
	// long. The holder renews it every renewInterval.
	leaseDuration = 10 * time.Second
	renewInterval = 3 * time.Second
	// probeInterval is the interval at which the VLAN is probed for the address.
	probeInterval = 500 * time.Millisecond
	// patience is the time for which the address must be unanswered before another replica takes it over. While the API server is
	// unavailable, alone is added.
	patience = 2 * time.Second
	alone    = time.Second
	// addressLifetime is the time after which the kernel removes the address if this process, killed or hanging, does not
	// confirm it.
	addressLifetime = 4 * time.Second
	// lingerTime is the maximum time that a terminating replica keeps the address until a peer claims it.
	lingerTime = 3 * time.Second
	// unreadyDelay is the additional time before a replica whose proxy is not ready claims the address, so that ready
	// ones can claim it first.
	unreadyDelay = 10 * time.Second
	// announceDuration is how long a new holder announces itself. One announcement is not enough: neighbours ignore
	// updates within a second of a change.
	announceDuration = 5 * time.Second
	// A holder replies to claims by announcements, at most at these intervals: quickly to a peer, because one of the
	// two must drop the address, and rarely to other hosts, which can send any number of claims.
	defendPeerInterval     = 100 * time.Millisecond
	defendStrangerInterval = time.Second
	// requestInterval is the minimum time before the next request to the API server after one that was not granted.
	requestInterval = time.Second
)

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
