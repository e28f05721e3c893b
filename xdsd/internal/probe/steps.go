package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/internal/probe"
)

// Run performs steps concurrently, and calls report with each outcome, in any order, one call at a time. The address of a device
// is the source of all requests; if it is empty or does not exist, the routing table decides. DHCP requires a device. A step that
// has not ended when ctx is done has an error.
//
// With an interval, Run repeats each step until ctx is done, and reports no outcome after that. A request does not wait for the previous
// one, except for DHCP: a service that is back is seen while earlier requests still wait for their timeout.
func Run(ctx context.Context, device string, interval time.Duration, steps []probe.Step, report func(probe.Outcome)) {
	r := &runner{source: sourceOf(device), device: device, repeats: interval > 0, report: report}
	if r.repeats {
		r.report = func(o probe.Outcome) {
			if ctx.Err() == nil {
				o.TLS = nil
				report(o)
			}
		}
	}
	semaphore := make(chan struct{}, maxConcurrent)
	for i := range steps {
		r.all.Go(func() {
			if r.repeats {
				r.repeat(ctx, interval, i, &steps[i])
				return
			}
			semaphore <- struct{}{}
			defer func() { <-semaphore }()
			r.step(ctx, i, &steps[i])
		})
	}
	r.all.Wait()
}

// A runner performs steps for Run.
type runner struct {
	source

	device  string
	repeats bool
	all     sync.WaitGroup
	lock    sync.Mutex
	report  func(probe.Outcome)
}

// repeat performs a step at an interval until ctx is done.
func (r *runner) repeat(ctx context.Context, interval time.Duration, index int, step *probe.Step) {
	for ticker := time.Tick(interval); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker:
		}
		once := func() {
			attempt, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			r.step(attempt, index, step)
		}
		if step.DHCP != nil { // a single request listens on the port of DHCP clients
			once()
		} else {
			r.all.Go(once)
		}
	}
}

// step performs a step and reports the outcome. It retries DNS and HTTP without a response.
func (r *runner) step(ctx context.Context, index int, step *probe.Step) {
	o := probe.Outcome{Step: index}
	times := 1
	if step.DNS != nil || step.HTTP != nil {
		times = attempts
	}
	if err := retry(ctx, times, func() error { return r.perform(ctx, step, &o) }); err != nil {
		o.Error = err.Error()
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	o.Ended = time.Now()
	r.report(o)
}

// perform performs one step and sets the fields of o.
func (r *runner) perform(ctx context.Context, step *probe.Step, o *probe.Outcome) (err error) {
	since := time.Now()
	switch {
	case step.DNS != nil:
		o.DNS, err = r.query(ctx, step.DNS)
	case step.HTTP != nil:
		o.HTTP, err = get(ctx, "http", step.HTTP, &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return r.dialer("tcp", step.HTTP.Address.Addr()).DialContext(ctx, "tcp", step.HTTP.Address.String())
		}})
	case step.TLS != nil:
		err = r.handshake(ctx, step.TLS, o)
	case step.DHCP != nil:
		return r.lease(ctx, step.DHCP, o)
	default:
		return errors.New("the client does not support this kind of request; its image is older than the plugin")
	}
	o.Took = time.Since(since)
	return err
}

// retry makes a request until it succeeds or ctx is done, at most a number of times.
func retry(ctx context.Context, times int, request func() error) (err error) {
	for attempt := 0; attempt < times && (attempt == 0 || err != nil && ctx.Err() == nil); attempt++ {
		err = request()
	}
	return err
}

// DNS sends a query from any address, again if there is no reply, and returns the reply.
func DNS(ctx context.Context, q *probe.Query) (reply *probe.Reply, err error) {
	err = retry(ctx, attempts, func() (err error) {
		reply, err = source{}.query(ctx, q)
		return err
	})
	return reply, err
}

// query sends one query.
func (s source) query(ctx context.Context, q *probe.Query) (*probe.Reply, error) {
	message := new(dns.Msg).SetQuestion(dns.Fqdn(q.Name), dns.StringToType[q.Type])
	client := &dns.Client{Net: q.Network, Timeout: timeout, Dialer: s.dialer(q.Network, q.Server)}
	if q.EDNS || q.Size > 0 {
		message.SetEdns0(dnsBuffer, false)
	}
	if q.Size > 0 {
		client.Dialer.Control = unfragmented
		size, padding := q.Size-headers(q.Server), &dns.EDNS0_PADDING{} // RFC 7830
		if s.mtu > 0 {
			size = min(q.Size, s.mtu) - headers(q.Server)
		}
		message.IsEdns0().Option = append(message.IsEdns0().Option, padding)
		padding.Padding = make([]byte, max(size-message.Len(), 0))
	}
	reply, _, err := client.ExchangeContext(ctx, message, netip.AddrPortFrom(q.Server, cmp.Or(q.Port, 53)).String())
	if err != nil {
		return nil, err
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

// handshake performs a TLS handshake, and requests the path of the target, if it has one, over the connection.
func (s source) handshake(ctx context.Context, target *probe.Target, o *probe.Outcome) (err error) {
	address := target.Address
	if target.Resolver.IsValid() {
		if address, err = s.resolve(ctx, target, o); err != nil {
			return err
		}
	}
	o.TLS = &probe.Handshake{Name: target.Name, Address: address}
	conn := Handshake(ctx, s.dialer("tcp", address.Addr()), "", o.TLS)
	if conn == nil {
		return errors.New(o.TLS.Error)
	}
	defer func() { _ = conn.Close() }() // nothing that was sent is of use later
	for _, c := range conn.ConnectionState().PeerCertificates {
		o.TLS.Chain = append(o.TLS.Chain, c.Raw)
	}
	if target.Path != "" {
		o.HTTP, err = get(ctx, "https", target, &http.Transport{
			ForceAttemptHTTP2: true, DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		})
	}
	return err
}

// resolve returns the first IPv4 address of a target's name with its port, and sets o.DNS.
func (s source) resolve(ctx context.Context, target *probe.Target, o *probe.Outcome) (netip.AddrPort, error) {
	err := retry(ctx, attempts, func() (err error) {
		o.DNS, err = s.query(ctx, &probe.Query{Server: target.Resolver, Network: "udp", Name: target.Name, Type: "A"})
		return err
	})
	switch {
	case err != nil:
		return netip.AddrPort{}, fmt.Errorf("resolving the name at %s: %w", target.Resolver, err)
	case len(o.DNS.Addresses) == 0:
		return netip.AddrPort{}, fmt.Errorf("DNS at %s returned no address for the name: %s", target.Resolver, o.DNS.Rcode)
	}
	return netip.AddrPortFrom(o.DNS.Addresses[0], target.Port), nil
}

// get requests a path of a server, without following redirects. It returns errNoResponse if the server does not
// respond in time.
func get(ctx context.Context, scheme string, target *probe.Target, transport *http.Transport) (*probe.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, responseTimeout, errNoResponse)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+target.Name+target.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	transport.DisableKeepAlives = true
	response, err := transport.RoundTrip(request)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("GET %s: %w", target.Path, err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	r := &probe.Response{Status: response.StatusCode}
	if r.Status >= http.StatusInternalServerError {
		body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // the status is known, whether or not the body is complete
		r.Body = string(body)
	}
	return r, nil
}

// responseTimeout limits a request over HTTP. An API server takes 4 seconds to report that etcd does not respond.
const responseTimeout = 6 * time.Second

// errNoResponse means that a server did not respond to an HTTP request.
var errNoResponse = fmt.Errorf("no response within %s", responseTimeout)

// maxBody is how much of a body is read: the error response of OpenShift's router has 3 KiB.
const maxBody = 8 << 10
