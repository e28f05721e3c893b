package control

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
)

func TestFailedActionsAreProblemsAfterTheirTime(t *testing.T) {
	s, refused := &Problems{}, errors.New("refused")
	infra := model.ParseRef("Infra", "clusters/demo")
	list := func(after time.Duration) []problem.Problem { return s.ofControl(time.Now().Add(after)) }

	_ = s.recordStatus(infra, refused)
	if len(list(0)) != 0 || len(list(31*time.Second)) != 1 {
		t.Errorf("%v at once, and %v after 31 s", list(0), list(31*time.Second))
	}
	since := list(time.Minute)[0].Since
	_ = s.recordStatus(infra, refused)
	if again := list(time.Minute)[0]; !again.Since.Equal(since) || len(again.Evidence) != 1 {
		t.Errorf("after the second failure: %+v, first at %s", again, since)
	}
	s.recordLeftovers("clusters/old", refused)
	s.recordLeftovers("clusters/hosted", refused)
	s.recordLeftovers("clusters/hosted", nil)
	var texts []string
	for _, p := range list(time.Minute) {
		texts = append(texts, fmt.Sprintf("%s %s %s", p.Severity, p.Code, p.Object))
	}
	slices.Sort(texts)
	want := []string{"fail StatusNotWritten Infra clusters/demo", "warn LeftInHostedCluster HostedCluster clusters/old"}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
	s.forget(infra)
	if left := list(time.Minute); len(left) != 1 {
		t.Errorf("after the Infra was deleted: %v", left)
	}
}

// TestUnresponsiveServices connects to an address that accepts connections, and to one on which nothing listens.
func TestUnresponsiveServices(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	lab.Must(t, err)
	defer func() { _ = listener.Close() }()
	open := netip.MustParseAddrPort(listener.Addr().String())
	proxy := &model.ProxyServer{Listeners: []*model.Listener{{Port: 53, UDP: true}, {Port: int32(open.Port())}}}
	service := &model.Proxy{Service: "clusters/demo-proxy"}
	f := &infraFacts{infra: &model.Infra{Ref: demo, Proxy: service}, proxies: []*model.ProxyServer{proxy}, proxy: component{enabled: true}}
	for _, tc := range []struct {
		addresses, silent string
	}{{"127.0.0.1", ""}, {"127.0.0.1 127.0.0.2", "127.0.0.2"}} {
		service.ClusterIPs = nil
		for text := range strings.FieldsSeq(tc.addresses) {
			service.ClusterIPs = append(service.ClusterIPs, netip.MustParseAddr(text))
		}
		var got string
		for _, p := range serviceProblems(t.Context(), f) {
			if p.Code == problem.ServiceUnreachable && p.Object.String() == "Service clusters/demo-proxy" && len(p.Evidence) == 1 {
				_, got, _ = strings.Cut(p.Message, "cluster IP ")
				got, _, _ = strings.Cut(got, " ")
			}
		}
		if got != tc.silent {
			t.Errorf("of %s, %q is silent", tc.addresses, got)
		}
	}
	f.proxy.fault = "not ready"
	if list := serviceProblems(t.Context(), f); len(list) > 0 {
		t.Errorf("of a proxy that is not ready: %v", list)
	}
}
