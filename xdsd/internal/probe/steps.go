package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/probe"
)

// Run performs steps concurrently, with addresses of a device as in Plan, and calls report with each outcome, in any
// order, one call at a time. A step that has not ended when ctx ends has an error.
func Run(ctx context.Context, device string, steps []probe.Step, report func(probe.Outcome)) {
	from := sourceOf(device)
	var all sync.WaitGroup
	var lock sync.Mutex
	semaphore := make(chan struct{}, maxConcurrent)
	for i := range steps {
		all.Go(func() {
			semaphore <- struct{}{}
			o := probe.Outcome{Step: i}
			if err := from.perform(ctx, device, &steps[i], &o); err != nil {
				o.Error = err.Error()
			}
			<-semaphore
			lock.Lock()
			defer lock.Unlock()
			report(o)
		})
	}
	all.Wait()
}

// perform performs one step and sets the fields of o.
func (s source) perform(ctx context.Context, device string, step *probe.Step, o *probe.Outcome) error {
	var request func() error
	switch {
	case step.DNS != nil:
		request = func() (err error) {
			o.DNS, err = s.query(ctx, step.DNS)
			return err
		}
	case step.HTTP != nil:
		request = func() (err error) {
			o.HTTP, err = s.get(ctx, step.HTTP)
			return err
		}
	case step.TLS != nil: // repeats the handshake itself
		return s.certificates(ctx, step.TLS, o)
	case step.DHCP != nil:
		return lease(ctx, device, step.DHCP, o)
	default:
		return errors.New("the client does not know this kind of request; its image is older than the plugin")
	}
	var err error
	for attempt := 0; attempt < attempts && (attempt == 0 || err != nil) && ctx.Err() == nil; attempt++ {
		since := time.Now()
		err = request()
		o.Took = time.Since(since)
	}
	return err
}

// resolvConf has the resolvers of the pod.
const resolvConf = "/etc/resolv.conf"

// query sends one query.
func (s source) query(ctx context.Context, q *probe.Query) (*probe.Reply, error) {
	message := new(dns.Msg).SetQuestion(dns.Fqdn(q.Name), dns.StringToType[q.Type])
	server := q.Server.String()
	if !q.Server.IsValid() {
		config, err := dns.ClientConfigFromFile(resolvConf)
		if err != nil || len(config.Servers) == 0 {
			return nil, fmt.Errorf("reading the resolvers in %s: %w", resolvConf, err)
		}
		server = config.Servers[0]
	}
	client := &dns.Client{Net: q.Network, Timeout: timeout, Dialer: s.dialer(q.Network, q.Server)}
	if q.EDNS || q.Size > 0 {
		message.SetEdns0(dnsBuffer, false)
	}
	if q.Size > 0 {
		client.Dialer.Control = unfragmented
		pad(message, q.Size-headers(q.Server))
	}
	reply, _, err := client.ExchangeContext(ctx, message, net.JoinHostPort(server, "53"))
	if err != nil {
		return nil, err //nolint:wrapcheck // names the server
	}
	r := &probe.Reply{Rcode: dns.RcodeToString[reply.Rcode], EDNS: reply.IsEdns0() != nil}
	for _, rr := range reply.Answer {
		var ip net.IP
		switch record := rr.(type) {
		case *dns.A:
			ip = record.A.To4()
		case *dns.AAAA:
			ip = record.AAAA
		}
		if address, ok := netip.AddrFromSlice(ip); ok {
			r.Addresses = append(r.Addresses, address)
		}
	}
	slices.SortFunc(r.Addresses, netip.Addr.Compare)
	return r, nil
}

// dnsBuffer is the size of the largest reply that a query with EDNS requests.
const dnsBuffer = 1232

// headers returns the size of the IP and UDP headers of a packet to an address.
func headers(to netip.Addr) int {
	const udp = 8
	if to.Is4() {
		return 20 + udp
	}
	return 40 + udp
}

// pad pads a message with an OPT record to a size (RFC 7830).
func pad(m *dns.Msg, size int) {
	option := &dns.EDNS0_PADDING{}
	opt := m.IsEdns0()
	opt.Option = append(opt.Option, option)
	option.Padding = make([]byte, max(size-m.Len(), 0))
}

// certificates performs a TLS handshake.
func (s source) certificates(ctx context.Context, target *probe.Target, o *probe.Outcome) error {
	since := time.Now()
	h := &probe.Handshake{Name: target.Name, Address: target.Address}
	conn := Handshake(ctx, s.dialer("tcp", target.Address.Addr()), "", h)
	o.Took = time.Since(since)
	o.TLS = &probe.Certificates{Connected: h.Connected, SmallPackets: h.SmallPackets}
	if conn == nil {
		return errors.New(h.Error)
	}
	o.TLS.Chain = chain(conn)
	_ = conn.Close() // no data was sent
	return nil
}

func chain(conn *tls.Conn) [][]byte {
	var list [][]byte
	for _, c := range conn.ConnectionState().PeerCertificates {
		list = append(list, c.Raw)
	}
	return list
}

// get requests the path / of a server over HTTP, and does not follow redirects.
func (s source) get(ctx context.Context, target *probe.Target) (*probe.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, attempts*timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.Name+"/", http.NoBody)
	if err != nil {
		return nil, err //nolint:wrapcheck // goes to the report
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return s.dialer("tcp", target.Address.Addr()).DialContext(ctx, network, target.Address.String())
	}}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err //nolint:wrapcheck // goes to the report
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody))
	return &probe.Response{Status: response.StatusCode, ProxyError: proxyError(response.StatusCode, string(body))}, errors.Join(err, response.Body.Close())
}

// proxyError returns the text of a response of Envoy itself, and "" for any other. Our configuration adds no header by which
// the two could be told apart: a backend's responses pass unchanged.
func proxyError(status int, body string) string {
	for _, text := range []string{"upstream connect error or disconnect/reset before headers", "no healthy upstream", "upstream request timeout"} {
		if status >= http.StatusInternalServerError && strings.HasPrefix(body, text) {
			return body
		}
	}
	return ""
}

// maxBody is how much of a response is read.
const maxBody = 1 << 16

// unfragmented makes a socket send packets that are not fragmented on the way, even if the kernel knows a smaller MTU of
// the path.
func unfragmented(_, _ string, c syscall.RawConn) (err error) {
	control := c.Control(func(fd uintptr) { err = setUnfragmented(int(fd)) })
	return errors.Join(control, err)
}
