// Package dhcp4 serves DHCP for IPv4 (RFC 2131) to CoreDHCP's plugins from a plain UDP
// socket: without a raw socket, and so without any capability.
package dhcp4

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/prometheus/client_golang/prometheus"
)

// Options say how a Server serves.
type Options struct {
	// Listen are the addresses. The zone is the network device; without one the server
	// listens on all.
	Listen []net.UDPAddr
	// Handlers are the plugins, in their order.
	Handlers []handler.Handler4
	// Limit is how many packets may be on their way through the plugins at once. What comes
	// beyond is dropped: clients ask again.
	Limit int
	// Drain is for how long packets may take that are with the plugins at the end.
	Drain time.Duration
	Log   *slog.Logger
	// Registerer gets the metrics.
	Registerer prometheus.Registerer
}

// Server serves. Its methods are safe for concurrent use.
type Server struct {
	options Options
	sockets []*socket
	queue   *queue
	metrics *metrics
}

// packet is a request and where it came from.
type packet struct {
	req    *dhcpv4.DHCPv4
	socket *socket
	from   net.IP
	device int // the index of the network device that it came by
}

// Listen opens the sockets. Nothing is read before Run.
func Listen(ctx context.Context, o Options) (*Server, error) {
	s := &Server{options: o}
	s.queue = newQueue(o.Limit, s.serve)
	s.metrics = newMetrics(s.queue.inFlight)
	for _, c := range s.metrics.collectors() {
		if err := o.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of DHCP: %w", err)
		}
	}
	for _, address := range o.Listen {
		socket, err := listen(ctx, address)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.sockets = append(s.sockets, socket)
		o.Log.Info("serving DHCP", "address", socket.conn.LocalAddr().String(), "device", socket.device)
	}
	return s, nil
}

// Run serves until the context ends, and then answers what was read before, for as long as
// Options.Drain. It fails when a socket does, one whose device went away for example.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	failures := make([]error, len(s.sockets))
	for i, socket := range s.sockets {
		group.Go(func() {
			defer cancel()
			failures[i] = s.read(ctx, socket)
		})
	}
	<-ctx.Done()
	for _, socket := range s.sockets {
		_ = socket.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader up, which sees the context
	}
	group.Wait()
	select {
	case <-s.queue.close():
	case <-time.After(s.options.Drain):
		s.options.Log.Warn("packets dropped at shutdown", "packets", s.queue.inFlight(), "after", s.options.Drain)
	}
	return errors.Join(errors.Join(failures...), s.close())
}

// Close closes the sockets of a Server that never ran.
func (s *Server) Close() error { return s.close() }

func (s *Server) close() error {
	var all []error
	for _, socket := range s.sockets {
		all = append(all, socket.conn.Close())
	}
	return errors.Join(all...)
}

// read reads packets until the context ends.
func (s *Server) read(ctx context.Context, socket *socket) error {
	const largest = 1 << 16
	buffer := make([]byte, largest)
	for {
		n, control, from, err := socket.conn.ReadFrom(buffer)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // it was woken up to end
		case err != nil:
			return fmt.Errorf("reading from %s%%%s: %w", socket.conn.LocalAddr(), socket.device, err)
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok || control == nil {
			continue
		}
		if reason := s.take(socket, buffer[:n], udp.IP, control.IfIndex); reason != "" {
			s.metrics.dropped.WithLabelValues(reason).Inc()
		}
	}
}

// take queues a packet, or returns why not.
func (s *Server) take(socket *socket, data []byte, from net.IP, device int) (dropped string) {
	defer s.recovered(&dropped)
	req, err := dhcpv4.FromBytes(data)
	if err != nil {
		return dropMalformed
	}
	if req.OpCode != dhcpv4.OpcodeBootRequest {
		return dropNotARequest
	}
	const ethernet = 6
	if req.HWType != iana.HWTypeEthernet || len(req.ClientHWAddr) != ethernet {
		return dropHardware
	}
	switch t := req.MessageType(); t {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform,
		dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline:
		s.metrics.received.WithLabelValues(t.String()).Inc()
	default:
		return dropType
	}
	return s.queue.push(packet{req: req, socket: socket, from: from, device: device})
}

// serve answers a packet.
func (s *Server) serve(p packet) {
	if reason := s.answer(p); reason != "" {
		s.metrics.dropped.WithLabelValues(reason).Inc()
		s.options.Log.Debug("no answer", "type", p.req.MessageType(), "mac", mac(p.req.ClientHWAddr), "reason", reason)
	}
}

// answer has the plugins answer a packet and sends the answer, or returns why there is none
// to what should have one.
func (s *Server) answer(p packet) (dropped string) {
	defer s.recovered(&dropped)
	resp, answered, err := skeleton(p.req)
	if err != nil {
		return dropMalformed
	}
	started := time.Now()
	resp = s.ask(p.req, resp)
	s.metrics.seconds.WithLabelValues(p.req.MessageType().String()).Observe(time.Since(started).Seconds())
	if !answered {
		return ""
	}
	if resp == nil {
		return dropSilent
	}
	if reason := complete(p.req, resp, p.self); reason != "" {
		return reason
	}
	resp, left := fit(p.req, resp)
	for _, code := range left {
		s.metrics.left.WithLabelValues(strconv.Itoa(int(code))).Inc()
	}
	if len(left) > 0 {
		s.options.Log.Debug("options omitted: the reply exceeds the client's maximum message size", "mac", mac(p.req.ClientHWAddr), "bytes", mostBytes(p.req)+headers, "options", left)
	}
	to := destination(p.req, resp, p.from)
	if err := p.socket.send(resp.ToBytes(), to, resp.ServerIdentifier(), p.device); err != nil {
		s.options.Log.Error("sending a reply failed", "type", resp.MessageType(), "mac", mac(p.req.ClientHWAddr), "err", err)
		return dropSend
	}
	s.metrics.sent.WithLabelValues(resp.MessageType().String()).Inc()
	s.options.Log.Debug("answered", "request", p.req.MessageType(), "answer", resp.MessageType(), "mac", mac(p.req.ClientHWAddr),
		"address", resp.YourIPAddr, "to", to)
	return ""
}

// ask runs the plugins. What is nil goes no further, whatever the plugin says: the next would
// end the process with it.
func (s *Server) ask(req, resp *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	for _, h := range s.options.Handlers {
		var stop bool
		if resp, stop = h(req, resp); stop || resp == nil {
			break
		}
	}
	return resp
}

// recovered keeps a packet that a plugin, or the parser, falls over from taking the server
// along.
func (s *Server) recovered(dropped *string) {
	if fault := recover(); fault != nil {
		s.options.Log.Error("panic while handling a packet", "fault", fault, "stack", string(debug.Stack()))
		*dropped = dropPanic
	}
}

// mac is a hardware address that is written when it is logged, and only then.
type mac net.HardwareAddr

// LogValue is slog.LogValuer's.
func (m mac) LogValue() slog.Value { return slog.StringValue(net.HardwareAddr(m).String()) }
