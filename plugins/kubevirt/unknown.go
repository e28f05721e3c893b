package kubevirt

import (
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// maxUnknown limits the unknown MAC addresses that are remembered, since any host on the VLAN can send packets.
	maxUnknown = 64
	// ethernetAddress is the length of an Ethernet address.
	ethernetAddress = 6
)

// An UnknownClient is a MAC address of no VM that has sent a packet, with the time of its last one.
type UnknownClient struct {
	MAC  string    `json:"mac"`
	Last time.Time `json:"last"`
}

// unknownClients has the unknown MAC addresses that have sent packets last. It is safe for concurrent use.
type unknownClients struct {
	mu   sync.Mutex
	last *simplelru.LRU[string, time.Time] // by MAC address
}

func newUnknownClients() *unknownClients {
	last, err := simplelru.NewLRU[string, time.Time](maxUnknown, nil)
	if err != nil {
		panic(err) // only if the size is not positive
	}
	return &unknownClients{last: last}
}

// add remembers a packet. It forgets the address that has been silent for the longest time if there are too many.
func (u *unknownClients) add(mac net.HardwareAddr, at time.Time) {
	if len(mac) != ethernetAddress {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last.Add(string(mac), at)
}

// list returns the addresses for which known returns false, the last one first.
func (u *unknownClients) list(known func(net.HardwareAddr) bool) []UnknownClient {
	u.mu.Lock()
	defer u.mu.Unlock()
	var list []UnknownClient
	for _, mac := range u.last.Keys() {
		last, _ := u.last.Peek(mac)
		if address := net.HardwareAddr(mac); !known(address) {
			list = append(list, UnknownClient{address.String(), last.UTC()})
		}
	}
	slices.SortFunc(list, func(a, b UnknownClient) int { return b.Last.Compare(a.Last) })
	return list
}
