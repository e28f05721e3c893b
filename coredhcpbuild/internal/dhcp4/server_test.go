package dhcp4

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/ipv4"

	"github.com/densityops/oooi/test/lab"
)

// timeout is the time to wait for events that are immediate on an idle host.
const timeout = 30 * time.Second

// request returns a packet of the client with the given last byte of the MAC address.
func request(tb testing.TB, client, xid byte, kind dhcpv4.MessageType, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	tb.Helper()
	mods = append([]dhcpv4.Modifier{
		dhcpv4.WithMessageType(kind), dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, client}),
		dhcpv4.WithTransactionID(dhcpv4.TransactionID{0, 0, 0, xid}),
	}, mods...)
	p, err := dhcpv4.New(mods...)
	lab.Must(tb, err)
	return p
}

// newServer returns a server on loopback.
func newServer(t *testing.T, limit int, drain time.Duration, handlers ...handler.Handler4) *Server {
	t.Helper()
	s, err := Listen(t.Context(), Options{
		Listen: []net.UDPAddr{{IP: net.IPv4(127, 0, 0, 1)}}, Handlers: handlers, Limit: limit, Drain: drain,
		Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	lab.Must(t, err)
	t.Cleanup(func() { _ = s.close() })
	return s
}

func (s *Server) dropped(reason string) int {
	return int(testutil.ToFloat64(s.metrics.dropped.WithLabelValues(reason)))
}

func TestReplies(t *testing.T) {
	ours, other, address := net.IPv4(192, 0, 2, 2), net.IPv4(192, 0, 2, 3), net.IPv4(192, 0, 2, 100)
	relay := net.IPv4(198, 51, 100, 1)
	yours := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithYourIP(ip) }
	nak := dhcpv4.WithMessageType(dhcpv4.MessageTypeNak)
	chosen := func(ip net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ip)) }
	for _, tc := range []struct {
		name    string
		kind    dhcpv4.MessageType
		request []dhcpv4.Modifier
		plugins []dhcpv4.Modifier
		from    net.IP
		to      string // or the reason of the drop
	}{
		{"an offer", dhcpv4.MessageTypeDiscover, nil, []dhcpv4.Modifier{yours(address)}, nil, "255.255.255.255:68"},
		{"an offer without the broadcast flag", dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{dhcpv4.WithBroadcast(false)}, []dhcpv4.Modifier{yours(address)}, nil, "255.255.255.255:68"},
		{"an offer without address", dhcpv4.MessageTypeDiscover, nil, nil, nil, dropNoAddress},
		{"this server selected", dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{chosen(ours)}, []dhcpv4.Modifier{yours(address)}, nil, "255.255.255.255:68"},
		{"another server selected", dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{chosen(other)}, []dhcpv4.Modifier{yours(address)}, nil, dropOtherServer},
		{"server identifier of a plugin selected", dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{chosen(other)}, []dhcpv4.Modifier{yours(address), chosen(other)}, nil, "255.255.255.255:68"},
		{"renewal", dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{dhcpv4.WithClientIP(address)}, []dhcpv4.Modifier{yours(address)}, address, "192.0.2.100:68"},
		{"renewal from another source address", dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{dhcpv4.WithClientIP(address)}, []dhcpv4.Modifier{yours(address)}, other, "255.255.255.255:68"},
		{"a NAK", dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{dhcpv4.WithClientIP(address)}, []dhcpv4.Modifier{nak, yours(address)}, address, "255.255.255.255:68"},
		{"through a relay agent", dhcpv4.MessageTypeDiscover, []dhcpv4.Modifier{dhcpv4.WithGatewayIP(relay)}, []dhcpv4.Modifier{yours(address)}, relay, "198.51.100.1:67"},
		{"a NAK through a relay agent", dhcpv4.MessageTypeRequest, []dhcpv4.Modifier{dhcpv4.WithGatewayIP(relay)}, []dhcpv4.Modifier{nak}, relay, "198.51.100.1:67"},
		{"INFORM", dhcpv4.MessageTypeInform, []dhcpv4.Modifier{dhcpv4.WithClientIP(address)}, []dhcpv4.Modifier{yours(other), dhcpv4.WithLeaseTime(60)}, address, "192.0.2.100:68"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := request(t, 1, 1, tc.kind, tc.request...)
			resp, replied, err := newResponse(req)
			if err != nil || !replied {
				t.Fatal(replied, err)
			}
			for _, mod := range tc.plugins {
				mod(resp)
			}
			got := complete(req, resp, func() net.IP { return ours })
			if got == "" {
				got = destination(req, resp, tc.from).String()
			}
			if got != tc.to {
				t.Fatalf("the destination is %q, want %q", got, tc.to)
			}
			refused := resp.MessageType() == dhcpv4.MessageTypeNak
			if refused && (!resp.YourIPAddr.IsUnspecified() || resp.IsBroadcast() != !req.GatewayIPAddr.IsUnspecified()) {
				t.Errorf("the response is %s", resp.Summary())
			}
			if tc.kind == dhcpv4.MessageTypeInform && (!resp.YourIPAddr.IsUnspecified() || resp.Options.Has(dhcpv4.OptionIPAddressLeaseTime)) {
				t.Errorf("the response is %s", resp.Summary())
			}
		})
	}
	req := request(t, 1, 1, dhcpv4.MessageTypeDiscover)
	resp, _, _ := newResponse(req)
	resp.YourIPAddr = address
	if got := complete(req, resp, func() net.IP { return nil }); got != dropNoServerID {
		t.Errorf("without a server identifier: %q", got)
	}
}

func TestOptionsAreEchoed(t *testing.T) {
	id := dhcpv4.OptClientIdentifier([]byte{1, 2, 0, 0, 0, 0, 1})
	agent := dhcpv4.OptRelayAgentInfo(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(1), []byte("port 7")))
	req := request(t, 1, 1, dhcpv4.MessageTypeDiscover, dhcpv4.WithOption(id), dhcpv4.WithOption(agent))
	resp, _, err := newResponse(req)
	lab.Must(t, err)
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation} {
		if string(resp.GetOneOption(code)) != string(req.GetOneOption(code)) {
			t.Errorf("option %s is %v", code, resp.GetOneOption(code))
		}
	}
	if data := resp.ToBytes(); len(data) < 300 || !strings.HasSuffix(strings.TrimRight(string(data), "\x00"), "port 7\xff") {
		t.Errorf("option 82 is not last in %d bytes", len(data))
	}
}

func TestFaultyPlugins(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		handler      handler.Handler4
		kind         dhcpv4.MessageType
	}{
		{"a plugin that panics", dropPanic, func(_, _ *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) { panic("plugin") }, dhcpv4.MessageTypeDiscover},
		{"a plugin that passes nil", dropSilent, func(_, _ *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) { return nil, false }, dhcpv4.MessageTypeDiscover},
		{"a plugin that assigns no address", dropNoAddress, func(_, r *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) { return r, false }, dhcpv4.MessageTypeDiscover},
		{"RELEASE", "", func(_, r *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) { return r, false }, dhcpv4.MessageTypeRelease},
		{"DECLINE", "", func(_, r *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) { return r, false }, dhcpv4.MessageTypeDecline},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls, nextCalls := 0, 0
			s := newServer(t, 1, 0,
				func(a, b *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) { calls++; return tc.handler(a, b) },
				func(_, r *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) { nextCalls++; _ = r.Options; return r, true })
			device, err := net.InterfaceByName("lo")
			lab.Must(t, err)
			got := s.handle(packet{req: request(t, 1, 1, tc.kind), socket: s.sockets[0], device: device.Index})
			if got != tc.reason || calls != 1 {
				t.Errorf("%d calls and reason %q", calls, got)
			}
			if tc.reason == dropSilent && nextCalls != 0 {
				t.Error("nil was passed to the next plugin")
			}
		})
	}
}

// A gate is a plugin that reports packets and blocks them until it is opened. It sends no reply.
type gate struct {
	entered chan *dhcpv4.DHCPv4
	open    chan struct{}
}

func newGate() *gate {
	return &gate{entered: make(chan *dhcpv4.DHCPv4, 100), open: make(chan struct{})}
}

func (g *gate) handle(req, _ *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, bool) {
	g.entered <- req
	<-g.open
	return nil, true
}

// next returns the next packet that reaches the gate.
func (g *gate) next(t *testing.T) *dhcpv4.DHCPv4 {
	t.Helper()
	select {
	case p := <-g.entered:
		return p
	case <-time.After(timeout):
		t.Fatal("timed out waiting for a packet")
		return nil
	}
}

func TestClientsAreHandledConcurrentlyAndPacketsInOrder(t *testing.T) {
	g := newGate()
	var mu sync.Mutex
	var order []byte
	s := newServer(t, 100, 0, g.handle, nil)
	s.queue.handle = func(p packet) {
		s.serve(p)
		mu.Lock()
		defer mu.Unlock()
		if p.req.ClientHWAddr[5] == 1 {
			order = append(order, p.req.TransactionID[3])
		}
	}
	for xid := byte(1); xid <= 4; xid++ {
		for client := byte(1); client <= 3; client++ {
			if why := s.queue.push(packet{req: request(t, client, xid, dhcpv4.MessageTypeDiscover)}); why != "" {
				t.Fatalf("dropped with reason %s", why)
			}
		}
	}
	seen := map[byte]bool{}
	for range 3 {
		p := g.next(t)
		if p.TransactionID[3] != 1 {
			t.Errorf("packet %d of client %d is handled first", p.TransactionID[3], p.ClientHWAddr[5])
		}
		seen[p.ClientHWAddr[5]] = true
	}
	if len(seen) != 3 || len(g.entered) != 0 {
		t.Errorf("clients %v are handled concurrently, and %d more packets", seen, len(g.entered))
	}
	close(g.open)
	<-s.queue.close()
	if !slices.Equal(order, []byte{1, 2, 3, 4}) {
		t.Errorf("the packets of one client were handled in the order %v", order)
	}
}

func TestLimits(t *testing.T) {
	g := newGate()
	s := newServer(t, 8, 0, g.handle)
	push := func(client, xid byte, kinds ...dhcpv4.MessageType) string {
		kind := append(kinds, dhcpv4.MessageTypeDiscover)[0]
		return s.queue.push(packet{req: request(t, client, xid, kind)})
	}
	for xid := byte(1); xid <= maxWaiting+1; xid++ {
		if why := push(1, xid); why != "" {
			t.Fatalf("packet %d is dropped with reason %s", xid, why)
		}
	}
	for _, tc := range []struct {
		name        string
		client, xid byte
		kind        dhcpv4.MessageType
		want        string
	}{
		{"too many packets of one client", 1, 99, dhcpv4.MessageTypeDiscover, dropClientQueueFull},
		{"retransmission of a packet being handled", 1, 1, dhcpv4.MessageTypeDiscover, dropRetransmission},
		{"retransmission of a waiting packet", 1, 3, dhcpv4.MessageTypeDiscover, dropRetransmission},
		{"another client", 2, 1, dhcpv4.MessageTypeDiscover, ""},
		{"DISCOVER above three quarters of the limit", 3, 1, dhcpv4.MessageTypeDiscover, dropQueueFull},
		{"REQUEST above three quarters of the limit", 3, 2, dhcpv4.MessageTypeRequest, ""},
		{"up to the limit", 4, 1, dhcpv4.MessageTypeRequest, ""},
		{"above the limit", 5, 1, dhcpv4.MessageTypeRequest, dropQueueFull},
		{"retransmission above the limit", 2, 1, dhcpv4.MessageTypeDiscover, dropRetransmission},
	} {
		if why := push(tc.client, tc.xid, tc.kind); why != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, why, tc.want)
		}
	}
	if n := s.queue.inFlight(); n != 8 {
		t.Errorf("%d packets are in flight, want 8", n)
	}
	close(g.open)
	<-s.queue.close()
	if n := s.queue.inFlight(); n != 0 || len(s.queue.clients) != 0 {
		t.Errorf("%d packets of %d clients remain", n, len(s.queue.clients))
	}
	if why := push(9, 9); why != dropDraining {
		t.Errorf("after close: %q", why)
	}
}

// run runs a server. It returns a function that stops it, and a channel for the result of Run.
func run(t *testing.T, s *Server) (stop context.CancelFunc, stopped chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stopped = make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	t.Cleanup(cancel)
	return cancel, stopped
}

// resultOf waits until a server has stopped.
func resultOf(t *testing.T, stopped chan error) error {
	t.Helper()
	select {
	case err := <-stopped:
		return err
	case <-time.After(timeout):
		t.Fatal("the server does not stop")
		return nil
	}
}

func send(t *testing.T, s *Server, data []byte) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "udp4", s.sockets[0].conn.LocalAddr().String())
	lab.Must(t, err)
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(data); err != nil {
		t.Fatal(err)
	}
}

func TestShutdownHandlesReceivedPackets(t *testing.T) {
	g := newGate()
	s := newServer(t, 8, timeout, g.handle)
	stop, stopped := run(t, s)
	send(t, s, request(t, 1, 1, dhcpv4.MessageTypeDiscover).ToBytes())
	g.next(t)
	stop()
	lab.Poll(t, "the shutdown to begin", s.queue.isClosed)
	select {
	case err := <-stopped:
		t.Fatalf("the server stopped before it had handled the packet: %v", err)
	default:
	}
	close(g.open)
	lab.Report(t, resultOf(t, stopped))
	if s.dropped(dropSilent) == 0 {
		t.Error("the packet was not handled")
	}
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

func TestShutdownDoesNotWaitForAHangingPlugin(t *testing.T) {
	g := newGate()
	defer close(g.open)
	s := newServer(t, 8, time.Millisecond, g.handle)
	stop, stopped := run(t, s)
	send(t, s, request(t, 1, 1, dhcpv4.MessageTypeDiscover).ToBytes())
	g.next(t)
	stop()
	lab.Report(t, resultOf(t, stopped))
}

func TestFailedSocketStopsTheServer(t *testing.T) {
	s := newServer(t, 8, time.Second)
	_, stopped := run(t, s)
	lab.Must(t, s.sockets[0].conn.Close())
	if err := resultOf(t, stopped); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the error is %v, want net.ErrClosed", err)
	}
}

func TestMissingDevice(t *testing.T) {
	_, err := Listen(t.Context(), Options{
		Listen: []net.UDPAddr{{IP: net.IPv4zero, Zone: "nowhere0"}}, Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err == nil || !strings.Contains(err.Error(), "%nowhere0") {
		t.Errorf("the error is %v", err)
	}
}

// FuzzPackets handles arbitrary packets. Replies must be valid and not too long.
func FuzzPackets(f *testing.F) {
	f.Add(request(f, 1, 1, dhcpv4.MessageTypeDiscover).ToBytes())
	f.Add(request(f, 1, 2, dhcpv4.MessageTypeRequest, dhcpv4.WithGatewayIP(net.IPv4(192, 0, 2, 1)),
		dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 2)))).ToBytes())
	f.Add(request(f, 1, 3, dhcpv4.MessageTypeDiscover, text(61, 300), text(82, 300), text(57, 2)).ToBytes())
	f.Add([]byte{1, 1, 6})
	s := &Server{options: Options{Log: slog.New(slog.DiscardHandler)}, queue: newQueue(1, func(packet) {}), selections: newSelections(), offers: newOffers()}
	s.metrics = newMetrics(s.queue.inFlight)
	f.Fuzz(func(t *testing.T, data []byte) {
		if s.receive(nil, data, &net.UDPAddr{}, &ipv4.ControlMessage{IfIndex: 1}) == dropPanic {
			t.Error("the parser panics")
		}
		<-s.idle()
		req, err := dhcpv4.FromBytes(data)
		if err != nil {
			return
		}
		resp, replied, err := newResponse(req)
		if err != nil || !replied {
			return
		}
		resp.YourIPAddr = net.IPv4(192, 0, 2, 100)
		if complete(req, resp, func() net.IP { return net.IPv4(192, 0, 2, 2) }) != "" {
			return
		}
		fitting, omitted := fit(req, resp)
		reply := fitting.ToBytes()
		if _, err := dhcpv4.FromBytes(reply); err != nil {
			t.Errorf("the reply cannot be parsed: %v", err)
		}
		if len(reply) > maxBytes(req)+optionSize(req.GetOneOption(dhcpv4.OptionRelayAgentInformation)) {
			t.Errorf("the reply has %d bytes, with omitted options %v", len(reply), omitted)
		}
		if destination(req, resp, net.IPv4zero) == nil {
			t.Error("the reply has no destination")
		}
	})
}

// idle returns a channel that is closed when nothing is in flight.
func (s *Server) idle() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s.queue.inFlight() > 0 {
			time.Sleep(time.Microsecond)
		}
	}()
	return done
}
