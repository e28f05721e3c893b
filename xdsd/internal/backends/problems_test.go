package backends

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const (
	api  = "clusters-demo/kube-apiserver/6443"
	apps = "infra/clusters/demo/apps-https"
)

// proxy has the hosted API server with a name that an object defines and one by convention, and apps.
func proxy() *model.ProxyServer {
	return &model.ProxyServer{
		Upstreams: []*model.Upstream{
			{Name: api, Service: "clusters-demo/kube-apiserver"},
			{Name: apps, Owner: model.Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}, FromVLAN: true},
		},
		Listeners: []*model.Listener{{Port: 443, Routes: []model.Route{
			{Host: "api.example.com", Upstream: api, Source: "spec.services"},
			{Host: "*.apps.example.com", Upstream: apps, Source: "appsIngress"},
		}}},
	}
}

// healthy returns the result of a probe of an endpoint without faults.
func healthy(upstream, address string, change ...func(*probe.Backend)) probe.Backend {
	b := probe.Backend{Upstream: upstream, Handshake: probe.Handshake{
		Name: "api.example.com", Address: netip.MustParseAddrPort(address), Connected: true, Covered: true, Names: []string{"api.example.com"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour), Issuer: "CN=root-ca",
	}}
	for _, f := range change {
		f(&b)
	}
	return b
}

func refuses(b *probe.Backend) {
	b.Connected, b.Refused, b.Error = false, true, "dial tcp "+b.Address.String()+": connect: connection refused"
}

func timesOut(b *probe.Backend) {
	b.Connected, b.Error = false, "dial tcp "+b.Address.String()+": i/o timeout"
}

func hangsUp(b *probe.Backend) { b.TimedOut, b.Error = true, "context deadline exceeded" }

// results returns the results of n probes of each backend, which follow each other as with a fault.
func results(n int, list ...probe.Backend) []*result {
	var all []*result
	for i := range list {
		r := &result{}
		for round := range n {
			r = r.next(&list[i], now.Add(time.Duration(round-n)*tick))
		}
		all = append(all, r)
	}
	return all
}

func TestProblemsOfBackends(t *testing.T) {
	const one, two, router = "10.0.0.1:6443", "10.0.0.2:6443", "192.0.2.9:443"
	vlan := &problem.VLAN{
		Interfaces: []problem.Interface{{Name: "net1", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.3/24")}}, {Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.3/24")}}},
		Hosts:      []problem.Host{{Address: netip.MustParseAddr("192.0.2.1"), MAC: "02:00:00:00:00:01"}, {Address: netip.MustParseAddr("192.0.2.9")}},
	}
	through := func(device string) func(*probe.Backend) { return func(b *probe.Backend) { b.Interface = device } }
	for _, tc := range []struct {
		name    string
		results []*result
		want    []string // code, severity and message
		remedy  string   // part of the first one
	}{
		{"none", results(9, healthy(api, one), healthy(api, two), healthy(apps, router)), nil, ""},
		{"not yet probed", nil, nil, ""},
		{"two probes", results(2, healthy(api, one, refuses)), nil, ""},
		{"refused", results(3, healthy(api, one, refuses)), []string{"BackendUnreachable fail connections to endpoint 10.0.0.1:6443 of backend " + api + " fail"}, "check that the pods listen on the targetPort of the Service; find the pod with: kubectl -n clusters-demo get pods -o wide --field-selector status.podIP=10.0.0.1"},
		{"one refused", results(3, healthy(api, one, refuses), healthy(api, two)), []string{"BackendUnreachable warn connections to 1 of 2 endpoints of backend " + api + " fail"}, "pods listen"},
		{"dropped", results(3, healthy(api, one, timesOut), healthy(api, two, timesOut)), []string{"BackendUnreachable fail connections to 2 of 2 endpoints of backend " + api + " get no answer"}, "NetworkPolicies that select the backend's pods ('kubectl -n clusters-demo get networkpolicies')"},
		{"one refused, one hangs", results(3, healthy(api, one, refuses), healthy(api, two, hangsUp)), []string{
			"BackendUnreachable fail connections to 1 of 2 endpoints of backend " + api + " fail",
			"BackendHandshakeFailing fail TLS handshakes with 1 of 2 endpoints of backend " + api + " time out, even in small packets, although TCP connections succeed: the process hangs",
		}, ""},
		{"large packets are lost", results(3, healthy(api, one, hangsUp, func(b *probe.Backend) { b.SmallPackets = true })), []string{
			"BackendHandshakeFailing fail TLS handshakes with endpoint 10.0.0.1:6443 of backend " + api + " complete in small packets only: large packets are lost, such as those with a certificate",
		}, "compare the MTU of the pod network"},
		{"no source port", results(3, healthy(api, one, func(b *probe.Backend) {
			b.Connected, b.Error = false, "dial tcp 10.0.0.1:6443: connect: cannot assign requested address"
		})), []string{"BackendUnreachable fail the pod has no free source port for connections to endpoint 10.0.0.1:6443 of backend " + api}, "ip_local_port_range"},
		{"route to the VLAN", results(3, healthy(api, one, timesOut, through("net1"))), []string{
			"BackendUnreachable fail packets to endpoint 10.0.0.1:6443 of backend " + api + " leave through net1: a route of the pod leads to the VLAN, although they are not in its subnets",
		}, "NetworkAttachmentDefinitions"},
		{"timeout in the pod network", results(3, healthy(api, one, timesOut, through("eth0"))), []string{"BackendUnreachable fail connections to endpoint 10.0.0.1:6443 of backend " + api + " get no answer"}, ""},
		{"another server", results(3, healthy(api, one, func(b *probe.Backend) { b.Covered = false })), []string{"BackendCertificateInvalid fail the certificate of endpoint 10.0.0.1:6443 of backend " + api + " is not valid for api.example.com"}, "selector"},
		{"a name by convention", results(3, healthy(api, one, func(b *probe.Backend) { b.Covered, b.Name = false, "kubernetes" })), nil, ""},
		{"expired", results(1, healthy(api, one, func(b *probe.Backend) { b.NotAfter = now.Add(-time.Second) })), []string{"BackendCertificateInvalid fail the certificate of endpoint 10.0.0.1:6443 of backend " + api + " has expired"}, "renew"},
		{"expires within a week", results(1, healthy(api, one, func(b *probe.Backend) { b.NotAfter = now.Add(6 * 24 * time.Hour) })), []string{"BackendCertificateInvalid warn the certificate of endpoint 10.0.0.1:6443 of backend " + api + " expires soon"}, "renew"},
		{"not valid yet", results(1, healthy(api, one, func(b *probe.Backend) { b.NotBefore = now.Add(time.Hour) })), []string{"BackendCertificateInvalid fail the certificate of endpoint 10.0.0.1:6443 of backend " + api + " is not valid yet"}, "clock"},
		{"no host with the apps address", results(3, healthy(apps, router, timesOut)), []string{
			"BackendUnreachable fail no host on the VLAN answers ARP requests for apps address 192.0.2.9:443: MetalLB does not announce it, or the nodes of the hosted cluster are not connected to this VLAN",
		}, "MetalLB"},
		{"apps address refuses", results(3, healthy(apps, "192.0.2.8:443", refuses)), []string{"BackendUnreachable fail connections to apps address 192.0.2.8:443 fail"}, "ingress router"},
		{"the router hangs", results(3, healthy(apps, router, hangsUp)), []string{
			"BackendHandshakeFailing fail TLS handshakes with apps address 192.0.2.9:443 fail, although TCP connections succeed: the ingress router hangs, or a filter drops packets with data",
		}, "ingress router"},
		{"an upstream that was removed", results(3, healthy("gone", one, refuses)), nil, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := judge{proxy: proxy(), networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, vlan: vlan, now: now}
			list := j.problems(tc.results)
			var got []string
			for _, p := range list {
				got = append(got, fmt.Sprintf("%s %s %s", p.Code, p.Severity, p.Message))
				if len(p.Evidence) == 0 || p.Object == (model.Ref{}) {
					t.Errorf("no evidence or object: %+v", p)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if len(list) > 0 && !strings.Contains(list[0].Remedy, tc.remedy) {
				t.Errorf("remedy %q, want %q", list[0].Remedy, tc.remedy)
			}
		})
	}
}

// TestFaultsBeginAnew checks that only successive probes with the same fault count.
func TestFaultsBeginAnew(t *testing.T) {
	r := &result{}
	at := now
	for _, step := range []struct {
		backend probe.Backend
		certain bool
	}{
		{healthy(api, "10.0.0.1:6443", refuses), false},
		{healthy(api, "10.0.0.1:6443", hangsUp), false},
		{healthy(api, "10.0.0.1:6443", refuses), false},
		{healthy(api, "10.0.0.1:6443", timesOut), false},
		{healthy(api, "10.0.0.1:6443", refuses), true},
		{healthy(api, "10.0.0.1:6443"), false},
	} {
		at = at.Add(tick)
		r = r.next(&step.backend, at)
		j := judge{proxy: proxy(), now: at}
		if list := j.problems([]*result{r}); len(list) > 0 != step.certain {
			t.Errorf("at %s: certain is %t", at.Sub(now), !step.certain)
		}
	}
}

func TestServiceWithoutEndpointsIsReportedAfterAWhile(t *testing.T) {
	for age, want := range map[time.Duration]int{minFault - time.Second: 0, minFault: 1} {
		j := judge{proxy: proxy(), now: now, empty: map[string]time.Time{api: now.Add(-age)}}
		if list := j.problems(nil); len(list) != want || want > 0 && (list[0].Code != problem.BackendUnreachable || list[0].Severity != problem.Fail) {
			t.Errorf("after %s: %+v", age, list)
		}
	}
}
