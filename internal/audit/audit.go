// Package audit records which names outside of the cluster the clients of a VLAN use, and which they ask for in vain, so that
// operators can review the list of names that egress allows.
package audit

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// Limits of a Log, whose clients may send any names and, with UDP, from any address. A client cannot displace the entries of
// others with names.
const (
	maxClients = 256
	maxNames   = 128 // of one client
)

// Kept is how long an entry is kept after the last event.
const Kept = time.Hour

// Path is the path at which daemons serve a Report.
const Path = "/egress"

// An Entry is what one client did with one name. Numbers are those since the client used the name for the first time, and
// start again at zero after Kept without an event.
type Entry struct {
	// Name is in lower case; empty for connections without SNI.
	Name   string     `json:"name"`
	Client netip.Addr `json:"client"`
	// Host is the host in egress.hosts that allows the name; empty if none does.
	Host string `json:"host,omitempty"`
	// Queries are the DNS queries that were forwarded or denied, because no record has the name.
	Queries uint64 `json:"queries,omitempty"`
	// Connections are the ended connections or HTTP requests to the proxy, Failures of them did not reach a server.
	Connections uint64 `json:"connections,omitempty"`
	Failures    uint64 `json:"failures,omitempty"`
	// Failure is why the last one of Failures ended.
	Failure string `json:"failure,omitempty"`
	// Sent and Received are bytes from and to the client.
	Sent     uint64 `json:"sent,omitempty"`
	Received uint64 `json:"received,omitempty"`
	// Last is the time of the last event.
	Last time.Time `json:"last"`
}

// A Report is the content of Path.
type Report struct {
	// Since is when the daemon started.
	Since time.Time `json:"since"`
	// Entries are sorted by name and client.
	Entries []Entry `json:"entries"`
}

// A Log has the entries of the last hour. If it is full, those that were used least recently are lost. All methods are safe for
// concurrent use.
type Log struct {
	since time.Time
	now   func() time.Time

	mu      sync.Mutex
	clients *simplelru.LRU[netip.Addr, *simplelru.LRU[string, *Entry]]
}

// NewLog returns a Log without entries. now is the clock, time.Now except in tests.
func NewLog(now func() time.Time) *Log {
	return &Log{since: now(), now: now, clients: newLRU[netip.Addr, *simplelru.LRU[string, *Entry]](maxClients)}
}

func newLRU[K comparable, V any](size int) *simplelru.LRU[K, V] {
	list, err := simplelru.NewLRU[K, V](size, nil)
	if err != nil {
		panic(err) // the sizes are positive
	}
	return list
}

// Add calls update with the entry of a client and a name, which must not keep it. The name is converted to lower case, without the
// trailing dot.
func (l *Log) Add(client netip.Addr, name string, update func(*Entry)) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	names, ok := l.clients.Get(client)
	if !ok {
		names = newLRU[string, *Entry](maxNames)
		l.clients.Add(client, names)
	}
	e, ok := names.Get(name)
	switch {
	case !ok:
		e = &Entry{Name: strings.Clone(name), Client: client} // the name may be a part of a message
		names.Add(e.Name, e)
	case now.Sub(e.Last) > Kept:
		*e = Entry{Name: e.Name, Client: client}
	}
	e.Last = now
	update(e)
}

// Report returns the entries of the last hour.
func (l *Log) Report() Report {
	now, r := l.now(), Report{Since: l.since, Entries: []Entry{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, names := range l.clients.Values() {
		for _, e := range names.Values() {
			if now.Sub(e.Last) <= Kept {
				r.Entries = append(r.Entries, *e)
			}
		}
	}
	slices.SortFunc(r.Entries, func(a, b Entry) int { return cmp.Or(cmp.Compare(a.Name, b.Name), a.Client.Compare(b.Client)) })
	return r
}
