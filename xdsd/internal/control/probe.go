package control

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// probeTimeout bounds one probe of a pod.
const probeTimeout = 3 * time.Second

// prober probes pods at their address in the pod network.
type prober struct {
	dns  *dns.Client
	http *http.Client
}

func newProber() *prober {
	return &prober{
		dns: &dns.Client{Net: "udp", Timeout: probeTimeout},
		http: &http.Client{
			Timeout:   probeTimeout,
			Transport: &http.Transport{DisableKeepAlives: true}, // probes are rare; Proxy is unset, because pods are reached directly
		},
	}
}

// address returns the host and port of a named container port.
func address(pod *corev1.Pod, port string) (string, error) {
	if pod.Status.PodIP == "" {
		return "", fmt.Errorf("has no IP address yet")
	}
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == port {
				return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(p.ContainerPort))), nil
			}
		}
	}
	return "", fmt.Errorf("has no container port named %q", port)
}

// dnsQuery is a name to query, and the addresses expected in the answer. Without addresses, any answer with RCODE
// NOERROR is accepted.
type dnsQuery struct {
	name string
	want []netip.Addr
}

// queryDNS queries a pod and compares its answer. Because the query arrives from the pod network, the answer is
// that of the view of pods.
func (p *prober) queryDNS(ctx context.Context, pod *corev1.Pod, q dnsQuery) error {
	at, err := address(pod, v1alpha1.PortDNS)
	if err != nil {
		return err
	}
	kind := dns.TypeA
	if len(q.want) > 0 && q.want[0].Is6() {
		kind = dns.TypeAAAA
	}
	query := new(dns.Msg)
	query.SetQuestion(dns.Fqdn(q.name), kind)
	query.SetEdns0(dns.DefaultMsgSize, false)
	reply, _, err := p.dns.ExchangeContext(ctx, query, at)
	if err != nil {
		return fmt.Errorf("DNS query for %s: %w", q.name, err)
	}
	if reply.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("DNS query for %s: %s", q.name, dns.RcodeToString[reply.Rcode])
	}
	var got []netip.Addr
	for _, rr := range reply.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			got = appendAddr(got, rr.A)
		case *dns.AAAA:
			got = appendAddr(got, rr.AAAA)
		}
	}
	slices.SortFunc(got, netip.Addr.Compare)
	want := slices.DeleteFunc(slices.Clone(q.want), func(a netip.Addr) bool { return a.Is6() != (kind == dns.TypeAAAA) })
	slices.SortFunc(want, netip.Addr.Compare)
	if len(want) > 0 && !slices.Equal(got, want) {
		return fmt.Errorf("DNS query for %s: the answer is %v, expected %v", q.name, got, want)
	}
	return nil
}

func appendAddr(list []netip.Addr, ip net.IP) []netip.Addr {
	if a, ok := netip.AddrFromSlice(ip); ok {
		list = append(list, a.Unmap())
	}
	return list
}

// checkReady requests /readyz of a pod.
func (p *prober) checkReady(ctx context.Context, pod *corev1.Pod) error {
	at, err := address(pod, v1alpha1.PortHealth)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("requesting /readyz from %s: %w", at, err)
	}
	response, err := p.http.Do(request)
	if err != nil {
		return fmt.Errorf("requesting /readyz: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	const maxBody = 200
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody)) // a partial body is sufficient
	return fmt.Errorf("is not ready: %s", strings.TrimSpace(string(body)))
}

// connect opens a TCP connection and closes it.
func (p *prober) connect(ctx context.Context, at netip.AddrPort) error {
	conn, err := (&net.Dialer{Timeout: probeTimeout}).DialContext(ctx, "tcp", at.String())
	if err != nil {
		return err
	}
	_ = conn.Close() // nothing was written
	return nil
}
