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

// probeTimeout bounds one question to one pod.
const probeTimeout = 3 * time.Second

// prober asks pods at their address in the pod network.
type prober struct {
	dns  *dns.Client
	http *http.Client
}

func newProber() *prober {
	return &prober{
		dns: &dns.Client{Net: "udp", Timeout: probeTimeout},
		http: &http.Client{
			Timeout:   probeTimeout,
			Transport: &http.Transport{DisableKeepAlives: true}, // a pod is asked seldom, and no proxy stands between
		},
	}
}

// address is where a pod is to be asked.
func address(pod *corev1.Pod, port string) (string, error) {
	if pod.Status.PodIP == "" {
		return "", fmt.Errorf("has no address yet")
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

// question is what a DNS server is asked, and the answer that it ought to have; none
// where any answer but a failure will do.
type question struct {
	name string
	want []netip.Addr
}

// askDNS asks a pod for the addresses of a name in its view of pods.
func (p *prober) askDNS(ctx context.Context, pod *corev1.Pod, q question) error {
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
		return fmt.Errorf("query for %s: %w", q.name, err)
	}
	if reply.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("query for %s: %s", q.name, dns.RcodeToString[reply.Rcode])
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
		return fmt.Errorf("query for %s: answer %v, want %v", q.name, got, want)
	}
	return nil
}

func appendAddr(list []netip.Addr, ip net.IP) []netip.Addr {
	if a, ok := netip.AddrFromSlice(ip); ok {
		list = append(list, a.Unmap())
	}
	return list
}

// askReady asks a pod whether it is ready.
func (p *prober) askReady(ctx context.Context, pod *corev1.Pod) error {
	at, err := address(pod, v1alpha1.PortHealth)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/readyz", http.NoBody)
	if err != nil {
		return fmt.Errorf("querying %s: %w", at, err)
	}
	response, err := p.http.Do(request)
	if err != nil {
		return fmt.Errorf("reading its readiness: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode == http.StatusOK {
		return nil
	}
	const enough = 200
	says, _ := io.ReadAll(io.LimitReader(response.Body, enough)) // as much as there is
	return fmt.Errorf("is not ready: %s", strings.TrimSpace(string(says)))
}
