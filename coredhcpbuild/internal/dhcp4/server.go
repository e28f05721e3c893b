// Package dhcp4 implements a DHCPv4 server (RFC 2131) for CoreDHCP's plugins that uses a plain UDP socket instead of a
// raw one. It needs no capability, except to bind a port below net.ipv4.ip_unprivileged_port_start.
package dhcp4

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coredhcp/coredhcp/handler"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/ipv4"
)

// Options configure a Server.
type Options struct {
	// Listen contains the listen addresses. The zone is the network device; without one the server listens on all
	// devices.
	Listen []net.UDPAddr
	// Handlers are the plugins in order.
	Handlers []handler.Handler4
	// Limit is the maximum number of packets that are being handled or waiting. Further packets are dropped; their
	// clients retry.
	Limit int
	// Drain is the maximum time at shutdown to reply to packets that have been read.
	Drain time.Duration
	// Probers returns the addresses of oooi's pods, whose probes get a reply.
	Probers func() []netip.Addr
	// Pool identifies the leases that replicas share, by which they recognize each other; empty for a server without replicas.
	Pool string
	Log  *slog.Logger
	// Registerer registers the metrics.
	Registerer prometheus.Registerer
}

// A Server is a DHCPv4 server. Its methods are safe for concurrent use.
type Server struct {
	options Options
	sockets []*socket
	queue   *queue
	metrics *metrics

	selections *selections
	others     others
	offers     *offers
	traffic    traffic
}

// A packet is a request with its source.
type packet struct {
	req    *dhcpv4.DHCPv4
	socket *socket
	from   net.IP
	device int // index of the network device that received it
}

// Listen opens the sockets and registers the metrics. It reads no packets before Run. The caller must call Run. If
// Listen returns an error, it has closed the sockets.
func Listen(ctx context.Context, o Options) (*Server, error) {
	s := &Server{options: o, selections: newSelections(), offers: newOffers()}
	s.queue = newQueue(o.Limit, s.serve)
	s.metrics = newMetrics(s.queue.inFlight)
	for _, c := range s.metrics.collectors() {
		if err := o.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering the metrics of the DHCP server: %w", err)
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
	if err := s.others.listen(ctx, o.Listen); err != nil {
		o.Log.Warn("cannot listen for other DHCP servers; they will not be detected", "err", err)
	}
	return s, nil
}

// Run serves until ctx is done or a socket fails, for example because its device was removed. It then replies to
// packets that have been read, for at most Options.Drain, and closes the sockets. It returns the errors of the
// sockets, or nil.
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
	for _, c := range s.others.clients {
		group.Go(func() { s.others.read(c) })
	}
	<-ctx.Done()
	for _, socket := range s.all() {
		_ = socket.conn.SetReadDeadline(time.Unix(1, 0)) // unblocks the reader, which then checks ctx
	}
	group.Wait()
	select {
	case <-s.queue.close():
	case <-time.After(s.options.Drain):
		s.options.Log.Warn("packets dropped at shutdown", "packets", s.queue.inFlight(), "after", s.options.Drain)
	}
	return errors.Join(errors.Join(failures...), s.close())
}

// all returns all sockets.
func (s *Server) all() []*socket {
	list := slices.Clone(s.sockets)
	for _, c := range s.others.clients {
		list = append(list, c.socket)
	}
	return list
}

func (s *Server) close() error {
	var all []error
	for _, socket := range s.all() {
		all = append(all, socket.conn.Close())
	}
	return errors.Join(all...)
}

// maxPacket is the size of the largest IPv4 packet in bytes.
const maxPacket = 1 << 16

// read reads packets until ctx is done.
func (s *Server) read(ctx context.Context, socket *socket) error {
	buffer := make([]byte, maxPacket)
	for {
		n, control, from, err := socket.conn.ReadFrom(buffer)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // unblocked by Run
		case err != nil:
			return fmt.Errorf("reading from %s: %w", where(socket.conn.LocalAddr().String(), socket.device), err)
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok || control == nil {
			continue
		}
		if reason := s.receive(socket, buffer[:n], udp, control); reason != "" {
			s.drop(reason)
		}
	}
}

// receive parses and queues a packet, or returns the reason why it is dropped.
func (s *Server) receive(socket *socket, data []byte, from *net.UDPAddr, control *ipv4.ControlMessage) (dropped string) {
	defer s.recoverPanic(&dropped)
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
	p := packet{req: req, socket: socket, from: from.IP, device: control.IfIndex}
	if p.isProbe() {
		s.answerProbe(p, from)
		return ""
	}
	switch t := req.MessageType(); t {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform,
		dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeDecline:
		s.metrics.received.WithLabelValues(t.String()).Inc()
		s.traffic.count("", time.Now())
	default:
		return dropType
	}
	s.selections.observe(req, control.Dst, time.Now())
	if req.MessageType() == dhcpv4.MessageTypeRequest {
		s.offers.forget(req.ClientHWAddr)
	}
	return s.queue.push(p)
}

// serve handles a packet, and counts it if it is dropped.
func (s *Server) serve(p packet) {
	if reason := s.handle(p); reason != "" {
		s.drop(reason)
		s.options.Log.Debug("no reply", "type", p.req.MessageType(), "mac", mac(p.req.ClientHWAddr), "reason", reason)
	}
}

// handle runs the plugins for a packet and sends the reply. It returns the reason why a packet that needs a reply
// gets none.
func (s *Server) handle(p packet) (dropped string) {
	defer s.recoverPanic(&dropped)
	resp, replied, err := newResponse(p.req)
	if err != nil {
		return dropMalformed
	}
	started := time.Now()
	resp = s.runPlugins(p.req, resp)
	s.metrics.seconds.WithLabelValues(p.req.MessageType().String()).Observe(time.Since(started).Seconds())
	if !replied {
		return ""
	}
	if resp == nil {
		return dropSilent
	}
	if reason := complete(p.req, resp, p.self); reason != "" {
		return reason
	}
	resp, omitted := fit(p.req, resp)
	for _, code := range omitted {
		s.metrics.omitted.WithLabelValues(strconv.Itoa(int(code))).Inc()
	}
	if len(omitted) > 0 {
		s.options.Log.Debug("options omitted: the reply exceeds the client's maximum message size", "mac", mac(p.req.ClientHWAddr),
			"bytes", maxBytes(p.req)+headers, "options", omitted)
	}
	to := destination(p.req, resp, p.from)
	if err := p.socket.send(resp.ToBytes(), to, resp.ServerIdentifier(), p.device); err != nil {
		s.options.Log.Error("sending a reply failed", "type", resp.MessageType(), "mac", mac(p.req.ClientHWAddr), "err", err)
		return dropSend
	}
	s.metrics.sent.WithLabelValues(resp.MessageType().String()).Inc()
	if resp.MessageType() == dhcpv4.MessageTypeOffer {
		s.offers.observe(p.req, time.Now())
	}
	s.options.Log.Debug("replied", "request", p.req.MessageType(), "reply", resp.MessageType(), "mac", mac(p.req.ClientHWAddr),
		"address", resp.YourIPAddr, "to", to)
	return ""
}

// runPlugins runs the plugins. It stops at a nil response, because the next plugin would panic.
func (s *Server) runPlugins(req, resp *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	for _, h := range s.options.Handlers {
		var stop bool
		if resp, stop = h(req, resp); stop || resp == nil {
			break
		}
	}
	return resp
}

// recoverPanic recovers from a panic of a plugin or the parser, which drops only the packet.
func (s *Server) recoverPanic(dropped *string) {
	if fault := recover(); fault != nil {
		s.options.Log.Error("panic while handling a packet", "fault", fault, "stack", string(debug.Stack()))
		*dropped = dropPanic
	}
}

// mac is a hardware address that is formatted only if it is logged.
type mac net.HardwareAddr

// LogValue implements slog.LogValuer.
func (m mac) LogValue() slog.Value { return slog.StringValue(net.HardwareAddr(m).String()) }
