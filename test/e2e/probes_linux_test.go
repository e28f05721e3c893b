//go:build e2e

package e2e_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

const (
	// pace is how often a client asks.
	pace = 100 * time.Millisecond
	// patience is how long it waits for an answer: less than the second after which TCP and ARP
	// ask again, so that each question is one.
	patience = 900 * time.Millisecond
	// steady is how many answers in a row make a service.
	steady = 10
)

// errWrong is an answer that is worse than none.
var errWrong = errors.New("wrong")

// A probe asks one question again and again, and keeps when it was answered. A question does
// not wait for the answer to the one before.
type probe struct {
	name string
	ask  func(context.Context) error

	mu    sync.Mutex
	asked []*question
}

type question struct {
	at       time.Time
	answered bool // or given up
	err      error
}

// run asks until the context ends, and returns when all is answered.
func (p *probe) run(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		q := &question{at: time.Now()}
		p.mu.Lock()
		p.asked = append(p.asked, q)
		p.mu.Unlock()
		open.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // what is asked is waited for
			defer cancel()
			err := p.ask(ctx)
			p.mu.Lock()
			q.answered, q.err = true, err
			p.mu.Unlock()
		})
	}
}

// since returns copies of the questions from a time on, up to the first that is open.
func (p *probe) since(from time.Time) (list []question) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.asked {
		if !q.answered {
			break
		}
		if !q.at.Before(from) {
			list = append(list, *q)
		}
	}
	return list
}

// amiss says why there is no service: the last questions have to be answered well.
func (p *probe) amiss(from time.Time) string {
	list := p.since(from)
	if len(list) < steady {
		return fmt.Sprintf("%s has been asked %d times", p.name, len(list))
	}
	for _, q := range list[len(list)-steady:] {
		if q.err != nil {
			return fmt.Sprintf("%s: %v", p.name, q.err)
		}
	}
	return ""
}

// outage is for how long there was no service, all in all: from each question without an answer
// to the next one that has one.
func (p *probe) outage(from time.Time) (total time.Duration) {
	var began time.Time
	for _, q := range p.since(from) {
		switch {
		case q.err != nil && began.IsZero():
			began = q.at
		case q.err == nil && !began.IsZero():
			total += q.at.Sub(began)
			began = time.Time{}
		}
	}
	return total
}

// wrong are the answers that are not so.
func (p *probe) wrong() (list []error) {
	for _, q := range p.since(time.Time{}) {
		if errors.Is(q.err, errWrong) {
			list = append(list, fmt.Errorf("%s at %s: %w", p.name, q.at.Format(time.TimeOnly), q.err))
		}
	}
	return list
}

// An expectation is where the proxy may be said to be, and where it was said to be last.
type expectation struct {
	mu   sync.Mutex
	may  []string
	last string
}

func (e *expectation) set(addresses ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.may = addresses
	if e.last == "" {
		e.last = addresses[0]
	}
}

func (e *expectation) told(address string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = address
	return slices.Contains(e.may, address)
}

func (e *expectation) address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// resolve asks the DNS server of the VLAN where the API server is.
func (v *vm) resolve(proxy *expectation) func(context.Context) error {
	return v.resolveAt(v.dns, proxy)
}

// resolveAt is resolve for another server.
func (v *vm) resolveAt(server string, proxy *expectation) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := v.dial(ctx, "udp", net.JoinHostPort(server, "53"))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		client := &dns.Client{}
		answer, _, err := client.ExchangeWithConnContext(ctx, new(dns.Msg).SetQuestion(apiHost+".", dns.TypeA), &dns.Conn{Conn: conn})
		switch {
		case err != nil:
			return err
		case answer.Rcode == dns.RcodeServerFailure: // which says that it does not know yet
			return errors.New("SERVFAIL")
		case len(answer.Answer) == 1:
			if a, ok := answer.Answer[0].(*dns.A); ok && proxy.told(a.A.String()) {
				return nil
			}
		}
		return fmt.Errorf("%w: %s", errWrong, answer)
	}
}

// resolved asks once where the API server is, as a machine does that never asks again.
func (v *vm) resolved(t *testing.T) *expectation {
	t.Helper()
	address := strings.TrimSpace(v.Run(t, "dig", "@"+v.dns, "+short", "+time=5", apiHost))
	e := &expectation{}
	e.set(address)
	return e
}

// connect connects to the API server by the proxy, wherever DNS has it.
func (v *vm) connect(ca *lab.CA, proxy *expectation) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := v.dialTLS(ctx, ca, proxy)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

func (v *vm) dialTLS(ctx context.Context, ca *lab.CA, proxy *expectation) (conn *tls.Conn, err error) {
	var says string
	err = v.Do(func() (err error) {
		conn, says, err = ca.DialTLS(ctx, net.JoinHostPort(proxy.address(), "6443"), apiHost)
		return err
	})
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return nil, fmt.Errorf("%w: %w", errWrong, err)
	case err != nil:
		return nil, err
	case says != apiHost:
		return nil, errors.Join(fmt.Errorf("%w: it leads to %s", errWrong, says), conn.Close())
	}
	return conn, nil
}

func (v *vm) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = v.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// lessee is a DHCP client that asks many questions at once.
type lessee struct {
	vm   *vm
	conn net.PacketConn

	mu   sync.Mutex
	open map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4
}

// lessee opens the machine's client port.
func (v *vm) lessee(t *testing.T) *lessee {
	t.Helper()
	l := &lessee{vm: v, open: map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4{}}
	err := v.Do(func() (err error) {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			control := c.Control(func(fd uintptr) { err = dhcpv4.BindToInterface(int(fd), "eth0") })
			return errors.Join(control, err)
		}}
		l.conn, err = config.ListenPacket(t.Context(), "udp4", fmt.Sprintf(":%d", dhcpv4.ClientPort))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	reader.Go(l.read)
	t.Cleanup(func() {
		_ = l.conn.Close() // which ends the reader
		reader.Wait()
	})
	return l
}

// read hands each answer to who waits for it.
func (l *lessee) read() {
	buffer := make([]byte, 1<<16)
	for {
		n, _, err := l.conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		p, err := dhcpv4.FromBytes(buffer[:n])
		if err != nil {
			continue
		}
		l.mu.Lock()
		answer := l.open[p.TransactionID]
		delete(l.open, p.TransactionID)
		l.mu.Unlock()
		if answer != nil {
			answer <- p
		}
	}
}

// ask sends a packet, and compares the answer with what the machine has.
func (l *lessee) ask(ctx context.Context, to net.IP, want dhcpv4.MessageType, mods ...dhcpv4.Modifier) error {
	p, err := dhcpv4.New(append(mods, dhcpv4.WithHwAddr(l.vm.mac))...)
	if err != nil {
		return err
	}
	answer := make(chan *dhcpv4.DHCPv4, 1)
	l.mu.Lock()
	l.open[p.TransactionID] = answer
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.open, p.TransactionID)
		l.mu.Unlock()
	}()
	if _, err := l.conn.WriteTo(p.ToBytes(), &net.UDPAddr{IP: to, Port: dhcpv4.ServerPort}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return os.ErrDeadlineExceeded
	case a := <-answer:
		if a.MessageType() != want || a.YourIPAddr.String() != l.vm.address {
			return fmt.Errorf("%w: %s", errWrong, a.Summary())
		}
		return nil
	}
}

// renew asks the server itself to prolong the lease, as a machine does that runs.
func (l *lessee) renew(ctx context.Context) error {
	return l.ask(ctx, net.ParseIP(dhcpAddress), dhcpv4.MessageTypeAck,
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(net.ParseIP(l.vm.address)))
}

// rebind asks whoever is there to prolong the lease, as a machine does whose server is gone.
func (l *lessee) rebind(ctx context.Context) error {
	return l.ask(ctx, net.IPv4bcast, dhcpv4.MessageTypeAck,
		dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), dhcpv4.WithClientIP(net.ParseIP(l.vm.address)))
}

// discover asks whoever is there for an address, as a machine does that boots.
func (l *lessee) discover(ctx context.Context) error {
	return l.ask(ctx, net.IPv4bcast, dhcpv4.MessageTypeOffer, dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover))
}

// A stream is one connection to the API server by the proxy, which is kept. Something is sent all
// the time, whether or not what was sent before has come back: who only reads learns nothing of a
// proxy that is gone.
type stream struct {
	conn *tls.Conn
	done sync.WaitGroup

	mu     sync.Mutex
	err    error       // why it broke
	echoes []time.Time // when something came back
}

// stream opens one.
func (v *vm) stream(ctx context.Context, ca *lab.CA, proxy *expectation) (*stream, error) {
	dial, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := v.dialTLS(dial, ca, proxy)
	if err != nil {
		return nil, err
	}
	s := &stream{conn: conn}
	s.done.Go(func() { s.end(s.send()) })
	s.done.Go(func() { s.end(s.receive()) })
	return s, nil
}

func (s *stream) send() error {
	for ; ; time.Sleep(pace) {
		if err := s.conn.SetWriteDeadline(time.Now().Add(lab.Patience)); err != nil {
			return err
		}
		if _, err := s.conn.Write([]byte("hello")); err != nil {
			return err
		}
	}
}

func (s *stream) receive() error {
	for echo := make([]byte, 5); ; {
		if err := s.conn.SetReadDeadline(time.Now().Add(lab.Patience)); err != nil {
			return err
		}
		if _, err := io.ReadFull(s.conn, echo); err != nil {
			return err
		}
		if string(echo) != "hello" {
			return fmt.Errorf("%w: an echo of %q", errWrong, echo)
		}
		s.mu.Lock()
		s.echoes = append(s.echoes, time.Now())
		s.mu.Unlock()
	}
}

// end keeps the first error, and ends the other direction.
func (s *stream) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err, s.echoes = err, append(s.echoes, time.Now())
	}
	s.mu.Unlock()
	_ = s.conn.Close()
}

// broken says why the stream ended.
func (s *stream) broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// silence is the longest time since then in which nothing came back: up to its end, where it has
// ended.
func (s *stream) silence(since time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := since
	for _, at := range s.echoes {
		if at.After(since) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	if s.err == nil {
		longest = max(longest, time.Since(last))
	}
	return longest
}

func (s *stream) close() {
	_ = s.conn.Close()
	s.done.Wait()
}
