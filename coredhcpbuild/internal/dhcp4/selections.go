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
)

const (
	// maxSelecting limits the clients whose selection is remembered. The oldest one is forgotten.
	maxSelecting = 1024
	// maxMACs limits the clients that a Selection lists.
	maxMACs = 8
)

// A Selection is a DHCP server that clients selected, by the server identifier of their last REQUEST or DECLINE, which they
// broadcast (RFC 2131, section 4.3.2), or by the destination of their last renewal. They include a server that
// replies on the same network. A client whose last REQUEST was a broadcast without a server identifier has not
// selected a server.
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
	mu      sync.Mutex
	clients *simplelru.LRU[[6]byte, selection]
}

type selection struct {
	server netip.Addr
	at     time.Time
}

func newSelections() *selections { return &selections{clients: newRecent[selection](maxSelecting)} }

// observe remembers the server that a client selected at a time, with a packet to a destination.
func (s *selections) observe(req *dhcpv4.DHCPv4, to net.IP, at time.Time) {
	t := req.MessageType()
	if t != dhcpv4.MessageTypeRequest && t != dhcpv4.MessageTypeDecline {
		return
	}
	server, ok := netip.AddrFromSlice(req.ServerIdentifier().To4())
	if !ok && req.GatewayIPAddr.IsUnspecified() && to.IsGlobalUnicast() {
		server, ok = netip.AddrFromSlice(to.To4())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch client := [6]byte(req.ClientHWAddr); {
	case ok && !server.IsUnspecified() && !server.IsMulticast():
		s.clients.Add(client, selection{server, at})
	case t == dhcpv4.MessageTypeRequest: // any server may reply
		s.clients.Remove(client)
	}
}

// newRecent returns an empty list of at most size clients by MAC address. It drops the client that was added, or
// added again, the longest time ago.
func newRecent[T any](size int) *simplelru.LRU[[6]byte, T] {
	list, err := simplelru.NewLRU[[6]byte, T](size, nil)
	if err != nil {
		panic(err) // only if size is not positive
	}
	return list
}

// list returns the selections sorted by server; empty, never nil.
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

// Selected returns the server that a client selected, and when; the zero Addr if that is not known.
func (s *Server) Selected(mac string) (netip.Addr, time.Time) {
	client, err := net.ParseMAC(mac)
	if err != nil || len(client) != len([6]byte{}) {
		return netip.Addr{}, time.Time{}
	}
	s.selections.mu.Lock()
	defer s.selections.mu.Unlock()
	selected, _ := s.selections.clients.Peek([6]byte(client))
	return selected.server, selected.at
}

// Selections returns the DHCP servers that clients selected since the start, this one included, sorted by address.
func (s *Server) Selections() []Selection { return s.selections.list() }
