package sourcelimit

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/densityops/oooi/test/lab"
)

var network lab.Network

func TestMain(m *testing.M) {
	if code := network.Main(m); code != 0 {
		os.Exit(code)
	}
}

var (
	server4  = netip.MustParseAddrPort("192.0.2.4:6443")
	server6  = netip.MustParseAddrPort("[2001:db8::4]:6443")
	alice    = netip.MustParseAddr("192.0.2.10")
	neighbor = netip.MustParseAddr("192.0.2.11")
	bob      = netip.MustParseAddr("192.0.2.130")
	alice6   = netip.MustParseAddr("2001:db8::10")
)

// A site is a server and a client, which has several addresses, on a VLAN.
type site struct {
	*testing.T

	server, client *lab.Namespace
}

func newSite(t *testing.T) *site {
	t.Helper()
	network.Need(t)
	s := &site{t, lab.NewNamespace(t), lab.NewNamespace(t)}
	lab.Must(t, lab.Cable(
		lab.End{In: s.server, Device: "net1", Addresses: []string{"192.0.2.4/24", "2001:db8::4/64"}},
		lab.End{In: s.client, Device: "net1", Addresses: []string{"192.0.2.10/24", "192.0.2.11/24", "192.0.2.130/24", "2001:db8::10/64"}},
	))
	for _, at := range []netip.AddrPort{server4, server6} {
		var l net.Listener
		if err := s.server.Do(func() (err error) {
			l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", at.String())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var serving sync.WaitGroup
		serving.Go(func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				serving.Go(func() { // as Envoy, the server closes a connection that the client closes
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				})
			}
		})
		t.Cleanup(func() { // after the cleanups of connections
			_ = l.Close()
			serving.Wait()
		})
	}
	return s
}

// open opens up to n connections and returns those that succeed within a second.
func (s *site) open(from netip.Addr, n int) []net.Conn {
	s.Helper()
	to := server4
	if from.Is6() {
		to = server6
	}
	var list []net.Conn
	for range n {
		ctx, cancel := context.WithTimeout(s.Context(), 500*time.Millisecond)
		conn, err := s.client.Dial(ctx, from, to)
		cancel()
		if err == nil {
			list = append(list, conn)
			s.Cleanup(func() { _ = conn.Close() })
		}
	}
	return list
}

func (s *site) apply(c Config) *Config {
	s.Helper()
	lab.Must(s, c.Validate())
	lab.Must(s, s.server.Do(c.Apply))
	return &c
}

func (s *site) read(c *Config) *State {
	s.Helper()
	var state *State
	lab.Must(s, s.server.Do(func() (err error) { state, err = c.Read(); return err }))
	return state
}

func TestSourceConnections(t *testing.T) {
	s := newSite(t)
	earlier := s.open(alice, 3) // not counted
	if len(earlier) != 3 {
		t.Fatal("no connection without limits")
	}
	c := s.apply(Config{
		Device: "net1", Limits: Limits{Connections: 5}, Bits4: 32, Bits6: 128,
		Networks: []Network{{netip.MustParsePrefix("192.0.2.128/25"), Limits{Connections: 8}}, {netip.MustParsePrefix("192.0.2.11/32"), Limits{}}},
	})
	first := s.open(alice, 9)
	for _, tc := range []struct {
		from netip.Addr
		want int
		got  []net.Conn
	}{{alice, 5, first}, {bob, 8, s.open(bob, 12)}, {neighbor, 20, s.open(neighbor, 20)}, {alice6, 5, s.open(alice6, 9)}} {
		if len(tc.got) != tc.want {
			t.Errorf("%s has %d connections, want %d", tc.from, len(tc.got), tc.want)
		}
	}
	state := s.read(c)
	if n := state.Refused[Connections]; n != 4+4+4 || state.Refused[Rate] != 0 {
		t.Errorf("refused: %v", state.Refused)
	}
	if got := state.Sources[Connections]; !slices.Equal(got, []string{alice.String(), bob.String(), alice6.String()}) {
		t.Errorf("sources at the limit: %v", got)
	}

	// A connection that ends makes room.
	_ = first[0].Close()
	lab.Poll(t, "room for another connection", func() bool { return len(s.open(alice, 1)) == 1 })

	// The same limits, as after a restart, keep the counts; other limits replace them.
	before := s.read(c).Refused[Connections]
	s.apply(*c)
	if len(s.open(alice, 1)) != 0 {
		t.Error("the restart forgot the connections")
	}
	if after := s.read(c).Refused[Connections]; after != before+1 {
		t.Errorf("%d refused connections after a restart, want %d", after, before+1)
	}
	c = s.apply(Config{Device: "net1", Limits: Limits{Connections: 30}, Bits4: 32, Bits6: 128})
	if n := len(s.open(alice, 10)); n != 10 {
		t.Errorf("with a higher limit, %d of 10 connections were accepted", n)
	}
	var tables []*nftables.Table
	err := s.server.Do(func() (err error) { tables, err = new(nftables.Conn).ListTables(); return err })
	if err != nil || len(tables) != 1 || tables[0].Name != c.table().Name {
		t.Errorf("tables %v, %v", tables, err)
	}
	s.apply(Config{Device: "net1", Bits4: 32, Bits6: 128})
	if err := s.server.Do(func() (err error) { tables, err = new(nftables.Conn).ListTables(); return err }); err != nil || len(tables) != 0 {
		t.Errorf("tables %v without limits, %v", tables, err)
	}
}

func TestSourceRate(t *testing.T) {
	s := newSite(t)
	c := s.apply(Config{Device: "net1", Limits: Limits{PerSecond: 1}, Bits4: 25, Bits6: 64})
	if n := len(s.open(alice, 5)) + len(s.open(neighbor, 5)); n < burst || n == 10 { // the bucket is refilled meanwhile
		t.Errorf("%d connections from one /25, want about %d", n, burst)
	}
	if n := len(s.open(bob, burst)); n != burst {
		t.Errorf("%d of %d connections of another /25", n, burst)
	}
	state := s.read(c)
	if state.Refused[Rate] == 0 || state.Refused[Connections] != 0 || !slices.Equal(state.Sources[Rate], []string{"192.0.2.0/25"}) {
		t.Errorf("state %+v", state)
	}
}

// TestOtherInterfacesAreNotLimited connects over loopback.
func TestOtherInterfacesAreNotLimited(t *testing.T) {
	s := newSite(t)
	s.apply(Config{Device: "net1", Limits: Limits{Connections: 1, PerSecond: 1}, Bits4: 32, Bits6: 128})
	for range 20 {
		conn, err := s.server.Dial(t.Context(), netip.Addr{}, server4)
		lab.Must(t, err)
		defer func() { _ = conn.Close() }()
	}
}

func TestValidate(t *testing.T) {
	good := Config{Device: "net1", Bits4: 24, Bits6: 64}
	lab.Report(t, good.Validate())
	twice := Network{CIDR: netip.MustParsePrefix("192.0.2.0/24")}
	for name, c := range map[string]Config{
		"IPv4 prefix length": {Bits4: 33, Bits6: 64}, "no IPv6 prefix length": {Bits4: 32},
		"host bits": {Bits4: 32, Bits6: 64, Networks: []Network{{CIDR: netip.MustParsePrefix("192.0.2.1/24")}}},
		"duplicate": {Bits4: 32, Bits6: 64, Networks: []Network{twice, twice}},
	} {
		if c.Validate() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
