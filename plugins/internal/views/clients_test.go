package views

import (
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/densityops/oooi/test/golden"
)

// TestClients runs the transcript testdata/clients.txt. The commands are:
//
//	views [routed] [others] NETWORK... [refused NETWORK]  the networks whose clients have views, and a view of others
//	client ADDRESS|none                                   the view of a client
//	address TYPE TEXT                                     the address of a net.Addr
func TestClients(t *testing.T) {
	var views []string
	golden.Transcript(t, "testdata/clients.txt", func(line string) []string {
		words := strings.Fields(line)
		switch words[0] {
		case "views":
			views = words[1:]
			return nil
		case "address":
			var remote net.Addr = textAddr(words[len(words)-1])
			address, zone, _ := strings.Cut(strings.Join(words[2:], ""), "%")
			switch words[1] {
			case "UDP":
				remote = &net.UDPAddr{IP: net.ParseIP(address), Zone: zone, Port: 53}
			case "TCP":
				remote = &net.TCPAddr{IP: net.ParseIP(address), Zone: zone, Port: 53}
			}
			return []string{clientAddr(remote).String()}
		}
		client, _ := netip.ParseAddr(words[1])
		found := map[string]bool{}
		for range 10 { // in any order
			if !slices.Contains(views, "refused") {
				rand.Shuffle(len(views), func(i, j int) { views[i], views[j] = views[j], views[i] })
			}
			name := "no view"
			if v := clientsOf(views).find(client); v != nil {
				name = v.Name
			}
			found[name] = true
		}
		return slices.Sorted(maps.Keys(found))
	})
}

// clientsOf returns the clients of the command views.
func clientsOf(words []string) *clients {
	c := &clients{}
	refused := false
	for _, word := range words {
		switch word {
		case "routed":
			c.routed = true
		case "others":
			c.others = &ClientView{Name: "others"}
		case "refused":
			refused = true
		default:
			view := len(c.views)
			if refused {
				view = noView
			}
			c.add(netip.MustParsePrefix(word), view)
			c.views = append(c.views, &ClientView{Name: word})
		}
	}
	return c
}

// textAddr is a net.Addr of a type that clientAddr does not handle specially.
type textAddr string

func (textAddr) Network() string  { return "text" }
func (a textAddr) String() string { return string(a) }

func TestClientAddrOfOtherTypes(t *testing.T) {
	for _, remote := range []net.Addr{
		&net.UnixAddr{Name: "/run/dns.sock", Net: "unixgram"}, &net.UDPAddr{IP: net.IP{1, 2, 3}}, (*net.UDPAddr)(nil), nil,
	} {
		if got := clientAddr(remote); got.IsValid() {
			t.Errorf("%v: got %v", remote, got)
		}
	}
	if got := clientAddr(&net.UDPAddr{IP: net.IP{192, 0, 2, 1}, Port: 53}); got != netip.MustParseAddr("192.0.2.1") {
		t.Errorf("an address of four bytes: got %v", got)
	}
}
