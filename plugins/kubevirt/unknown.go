package kubevirt

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/densityops/oooi/internal/probe"
)

const (
	// maxUnknown limits the unknown MAC addresses that are remembered, since any host on the VLAN can send packets.
	maxUnknown = 64
	// unknownPause is the time without requests after which an address's count restarts.
	unknownPause = 10 * time.Minute
	// ethernetAddress is the length of an Ethernet address.
	ethernetAddress = 6
)

// An UnknownClient is a MAC address of no VM that has requested an address, and has selected no server since.
type UnknownClient struct {
	MAC string `json:"mac"`
	// Requests is the number of requests, without pauses of ten minutes or more, and First and Last are the times of the first
	// and the last one.
	Requests int       `json:"requests"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
}

// unknownClients has the unknown MAC addresses that have requested addresses last. It is safe for concurrent use.
type unknownClients struct {
	mu   sync.Mutex
	last *simplelru.LRU[string, UnknownClient] // by the bytes of the MAC address
}

func newUnknownClients() *unknownClients {
	last, err := simplelru.NewLRU[string, UnknownClient](maxUnknown, nil)
	if err != nil {
		panic(err) // only if the size is not positive
	}
	return &unknownClients{last: last}
}

// observe records a request for an address, and removes a client that selects another server. It ignores other
// packets, and oooi's probes. If there are too many addresses, it removes the one without a request for the longest
// time.
func (u *unknownClients) observe(req *dhcpv4.DHCPv4, at time.Time) {
	t := req.MessageType()
	if len(req.ClientHWAddr) != ethernetAddress || t != dhcpv4.MessageTypeDiscover && t != dhcpv4.MessageTypeRequest || req.ClassIdentifier() == probe.DHCPClass {
		return
	}
	mac := string(req.ClientHWAddr)
	u.mu.Lock()
	defer u.mu.Unlock()
	if req.Options.Has(dhcpv4.OptionServerIdentifier) {
		u.last.Remove(mac)
		return
	}
	client, _ := u.last.Peek(mac)
	if at.Sub(client.Last) >= unknownPause {
		client = UnknownClient{MAC: req.ClientHWAddr.String(), First: at.UTC()}
	}
	client.Requests++
	client.Last = at.UTC()
	u.last.Add(mac, client)
}

// list returns the addresses for which known returns false, the last one first.
func (u *unknownClients) list(known func(net.HardwareAddr) bool) []UnknownClient {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []UnknownClient
	for _, mac := range u.last.Keys() {
		if client, _ := u.last.Peek(mac); !known(net.HardwareAddr(mac)) {
			list = append(list, client)
		}
	}
	slices.SortFunc(list, func(a, b UnknownClient) int { return b.Last.Compare(a.Last) })
	return list
}
