package neighbours

import (
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	report "github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/sockdiag"
)

const (
	// minRepeated is how often the kernel must have repeated its SYN-ACK, which it does after 1 and 3 seconds.
	minRepeated = 2
	// maxUnfinished limits the result of Unfinished.
	maxUnfinished = 32
)

// Unfinished returns the connections of this network namespace whose handshake does not complete, by client and port,
// sorted: the client does not answer a repeated SYN-ACK. At most 32 are returned.
func Unfinished() ([]report.Unfinished, error) {
	// A proxy has thousands of connections in other states, such as Envoy's health checks in TIME_WAIT.
	sockets, err := sockdiag.List(1 << unix.BPF_TCP_SYN_RECV)
	if err != nil {
		return nil, err
	}
	counts := map[report.Unfinished]int{}
	for _, s := range sockets {
		if s.Retransmits >= minRepeated {
			counts[report.Unfinished{Address: s.Local, Client: s.Remote.Addr()}]++
		}
	}
	var list []report.Unfinished
	for u, count := range counts {
		u.Connections = count
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b report.Unfinished) int {
		return cmp.Or(a.Address.Compare(b.Address), a.Client.Compare(b.Client))
	})
	return list[:min(len(list), maxUnfinished)], nil
}
