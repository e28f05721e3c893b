package dhcp4

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxSelecting limits the clients whose selection is remembered. The oldest one is forgotten.
	maxSelecting = 1024
	// maxSelected limits the values of the metric's label. Further servers are counted as "other".
	maxSelected = 16
	// maxMACs limits the clients that a Selection lists.
	maxMACs = 8
)

// A Selection is a DHCP server that clients selected, by the server identifier of their last REQUEST or DECLINE. Clients
// broadcast these messages (RFC 2131, section 4.3.2), so a server that answers on the same network is among them.
type Selection struct {
	Server netip.Addr `json:"server"`
	// Clients is the number of clients whose last selection was the server.
	Clients int `json:"clients"`
	// Last is the time of the last message.
	Last time.Time `json:"last"`
	// MACs are the MAC addresses of the clients, the last ones first, at most 8.
	MACs []string `json:"macs"`
}

// selections remembers the servers that clients selected. It is safe for concurrent use.
type selections struct {
	counter *prometheus.CounterVec

	mu      sync.Mutex
	clients *simplelru.LRU[[6]byte, selection]
	labels  []netip.Addr
}

type selection struct {
	server netip.Addr
	at     time.Time
}

func newSelections() *selections {
	return &selections{
		clients: newRecent[selection](maxSelecting),
		counter: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "coredhcp", Subsystem: "dhcp4", Name: "selected_total", Help: "REQUEST and DECLINE messages that name a server, by server.",
		}, []string{"server"}),
	}
}

// observe remembers the server that a client selected at a time. It ignores messages that select none.
func (s *selections) observe(req *dhcpv4.DHCPv4, at time.Time) {
	if t := req.MessageType(); t != dhcpv4.MessageTypeRequest && t != dhcpv4.MessageTypeDecline {
		return
	}
	server, ok := netip.AddrFromSlice(req.ServerIdentifier().To4())
	if !ok || server.IsUnspecified() || server.IsMulticast() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients.Add([6]byte(req.ClientHWAddr), selection{server, at})
	if !slices.Contains(s.labels, server) && len(s.labels) < maxSelected {
		s.labels = append(s.labels, server)
	}
	label := "other"
	if slices.Contains(s.labels, server) {
		label = server.String()
	}
	s.counter.WithLabelValues(label).Inc()
}

// newRecent returns an empty list of at most size clients by MAC address. It forgets the client that was added, or added
// again, the longest time ago.
func newRecent[T any](size int) *simplelru.LRU[[6]byte, T] {
	list, err := simplelru.NewLRU[[6]byte, T](size, nil)
	if err != nil {
		panic(err) // only if size is not positive
	}
	return list
}

// list returns the selections sorted by server; empty, not nil, if there are none.
func (s *selections) list() []Selection {
	type client struct {
		mac [6]byte
		selection
	}
	s.mu.Lock()
	clients := make([]client, 0, s.clients.Len())
	for _, mac := range s.clients.Keys() {
		selected, _ := s.clients.Peek(mac)
		clients = append(clients, client{mac, selected})
	}
	s.mu.Unlock()
	slices.SortFunc(clients, func(a, b client) int {
		return cmp.Or(a.server.Compare(b.server), b.at.Compare(a.at), slices.Compare(a.mac[:], b.mac[:]))
	})
	list := []Selection{}
	for _, c := range clients {
		if len(list) == 0 || list[len(list)-1].Server != c.server {
			list = append(list, Selection{Server: c.server, Last: c.at})
		}
		last := &list[len(list)-1]
		last.Clients++
		if len(last.MACs) < maxMACs {
			last.MACs = append(last.MACs, net.HardwareAddr(c.mac[:]).String())
		}
	}
	return list
}

// Selections returns the DHCP servers that clients selected since the start, this one included, sorted by address.
func (s *Server) Selections() []Selection { return s.selections.list() }
