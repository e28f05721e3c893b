package dhcp4

import (
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/probe"
)

const (
	// maxOffered limits the clients whose offers are remembered. The one with the oldest offer is forgotten.
	maxOffered = 1024
	// offerPause is the time after the last offer after which a client's offers count from the start.
	offerPause = 90 * time.Second
)

// An Offered is a client that has requested none of its last offers.
type Offered struct {
	MAC string `json:"mac"`
	// Offers is the number of offers, without pauses of 90 seconds or more, and First and Last are the times of the first
	// and the last one.
	Offers int       `json:"offers"`
	First  time.Time `json:"first"`
	Last   time.Time `json:"last"`
}

// offers remembers the offers that clients do not request. It is safe for concurrent use.
type offers struct {
	mu      sync.Mutex
	clients *simplelru.LRU[[6]byte, Offered]
}

func newOffers() *offers { return &offers{clients: newRecent[Offered](maxOffered)} }

// requestsNone reports whether a client may ignore offers. A network boot client ignores offers without a boot file,
// and oooi's probes do not lease.
func requestsNone(req *dhcpv4.DHCPv4) bool {
	class := req.ClassIdentifier()
	return class == probe.DHCPClass || strings.HasPrefix(class, "PXEClient") || strings.HasPrefix(class, "HTTPClient")
}

// observe remembers an offer in reply to a packet.
func (o *offers) observe(req *dhcpv4.DHCPv4, at time.Time) {
	if requestsNone(req) {
		return
	}
	client := [6]byte(req.ClientHWAddr)
	o.mu.Lock()
	defer o.mu.Unlock()
	offered, _ := o.clients.Peek(client)
	if at.Sub(offered.Last) > offerPause {
		offered = Offered{MAC: req.ClientHWAddr.String(), First: at}
	}
	offered.Offers++
	offered.Last = at
	o.clients.Add(client, offered)
}

// forget forgets the offers of a client that has requested an address, of whichever server.
func (o *offers) forget(client net.HardwareAddr) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.clients.Remove([6]byte(client))
}

// Offered returns the clients that have requested none of the last offers of this server, sorted by MAC address.
func (s *Server) Offered() []Offered {
	s.offers.mu.Lock()
	defer s.offers.mu.Unlock()
	list := s.offers.clients.Values()
	slices.SortFunc(list, func(a, b Offered) int { return strings.Compare(a.MAC, b.MAC) })
	return list
}
