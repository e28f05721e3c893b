package backends

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
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

// TestProblemsOfBackends runs the transcript testdata/problems.txt: a line has the number of probes of each endpoint, and the endpoints, as
// UPSTREAM ADDRESS [FAULT ...], separated by ";". A fault with "/" belongs to the last probe, the faults before it to the previous one. The output are
// the problems with their remedies.
func TestProblemsOfBackends(t *testing.T) {
	vlan := &problem.VLAN{
		Interfaces: []problem.Interface{{Name: "net1", Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.3/24")}}, {Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.9.0.3/24")}}},
		Hosts:      []problem.Host{{Address: netip.MustParseAddr("192.0.2.1"), MAC: "02:00:00:00:00:01"}, {Address: netip.MustParseAddr("192.0.2.9")}},
	}
	golden.Transcript(t, "testdata/problems.txt", func(line string) (lines []string) {
		probes, endpoints, _ := strings.Cut(line, " ")
		n, err := strconv.Atoi(probes)
		lab.Must(t, err)
		j := judge{proxy: proxy(), networks: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, vlan: vlan, now: now}
		var results []*result
		for endpoint := range strings.SplitSeq(endpoints, ";") {
			words := strings.Fields(endpoint)
			r := &result{}
			if words[0] == "empty" { // a Service without endpoints for so many seconds
				j.empty = map[string]time.Time{api: now.Add(-time.Duration(n) * time.Second)}
				continue
			}
			for round := range n {
				b := probed(t, words[0], words[1], words[2:], round == n-1)
				r = r.next(&b, now.Add(time.Duration(round-n)*tick))
			}
			results = append(results, r)
		}
		for _, p := range j.problems(results) {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s; remedy: %s", p.Code, p.Severity, p.Object, p.Message, p.Remedy))
			if len(results) > 0 && len(p.Evidence) == 0 {
				t.Errorf("%s: no evidence: %+v", line, p)
			}
		}
		return lines
	})
}

// probed returns the result of a probe of an endpoint with faults.
func probed(t *testing.T, upstream, address string, faults []string, last bool) probe.Backend {
	t.Helper()
	b := probe.Backend{Upstream: map[string]string{"api": api, "apps": apps, "gone": "gone"}[upstream], Handshake: probe.Handshake{
		Name: "api.example.com", Address: netip.MustParseAddrPort(address), Connected: true, Covered: true, Names: []string{"api.example.com"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour), Issuer: "CN=root-ca",
	}}
	for _, fault := range faults {
		if before, after, two := strings.Cut(fault, "/"); two {
			fault = before
			if last {
				fault = after
			}
		}
		key, value, _ := strings.Cut(fault, "=")
		switch key {
		case "refuses":
			b.Connected, b.Refused, b.Error = false, true, "dial tcp "+address+": connect: connection refused"
		case "times-out":
			b.Connected, b.Error = false, "dial tcp "+address+": i/o timeout"
		case "no-port":
			b.Connected, b.Error = false, "dial tcp "+address+": connect: cannot assign requested address"
		case "hangs":
			b.TimedOut, b.Error = true, "context deadline exceeded"
		case "small-packets":
			b.SmallPackets = true
		case "through":
			b.Interface = value
		case "uncovered":
			b.Covered = false
		case "name":
			b.Name = value
		case "from", "until": // of the certificate, relative to now
			d, err := time.ParseDuration(value)
			lab.Must(t, err)
			if key == "from" {
				b.NotBefore = now.Add(d)
			} else {
				b.NotAfter = now.Add(d)
			}
		case "":
		default:
			t.Fatalf("unknown fault %q", fault)
		}
	}
	return b
}
