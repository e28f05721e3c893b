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

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

func TestFaultsAreProblemsAfterTheirTime(t *testing.T) {
	f, refused := &Faults{}, errors.New("refused")
	key := client.ObjectKey{Namespace: "clusters", Name: "demo"}
	status := problem.Failed(problem.StatusNotWritten, model.Ref{Kind: "Infra", Namespace: key.Namespace, Name: key.Name}, "the status")
	count := func(after time.Duration) int { return len(f.problems(time.Now().Add(after))) }

	f.record(statusAction("Infra", key, "one"), refused, status)
	if count(0) != 0 || count(31*time.Second) != 1 {
		t.Errorf("%d problems at once, and %d after 31 s", count(0), count(31*time.Second))
	}
	since := f.problems(time.Now().Add(time.Minute))[0].Since
	f.record(statusAction("Infra", key, "one"), refused, status)
	if again := f.problems(time.Now().Add(time.Minute))[0]; !again.Since.Equal(since) || len(again.Evidence) != 1 {
		t.Errorf("after the second failure: %+v, first at %s", again, since)
	}
	f.recordLeftovers("", "clusters/hosted", refused)
	f.recordLeftovers("clusters/demo", "clusters/hosted", refused)
	if count(0) != 2 {
		t.Errorf("%d problems, want those of both leftovers at once", count(0))
	}
	f.recordLeftovers("", "clusters/hosted", nil)
	f.record(statusAction("Infra", key, "one-two"), refused, status)
	f.forget(statusAction("Infra", key, "one"))
	if count(time.Minute) != 2 {
		t.Errorf("%d problems, want a leftover, and the status of another field manager", count(time.Minute))
	}
	f.forget(statusAction("Infra", key, ""))
	if count(time.Minute) != 1 {
		t.Errorf("%d problems, want a leftover", count(time.Minute))
	}
}

// TestSilentServices connects to an address on which nothing listens, and then to one that accepts connections.
func TestSilentServices(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	open, closed := netip.MustParseAddrPort(listener.Addr().String()), netip.MustParseAddrPort("127.0.0.1:1")
	p, f, start := newProber(), &Faults{}, time.Now().UTC().Truncate(time.Second)
	probe := func(infra string, addresses ...netip.AddrPort) []problem.Problem {
		results := map[netip.AddrPort]error{}
		for _, a := range addresses {
			results[a] = p.connect(t.Context(), a)
		}
		f.recordServices(infra, results)
		return f.problems(time.Now().Add(21 * time.Second))
	}
	probe("clusters/other", open)
	list := probe("clusters/demo", open, closed)
	if len(list) != 1 || list[0].Object.String() != "Service clusters/demo-proxy" || !strings.Contains(list[0].Message, closed.String()) ||
		list[0].Since.Before(start) || len(list[0].Evidence) != 1 {
		t.Errorf("after 21 s: %+v", list)
	}
	if list := f.problems(time.Now()); len(list) > 0 {
		t.Errorf("at once: %+v", list)
	}
	if list := probe("clusters/demo", open); len(list) > 0 {
		t.Errorf("after a connection: %+v", list)
	}
}

func TestProblemsOfControl(t *testing.T) {
	f, refused := &Faults{}, errors.New("refused")
	w := statusAction("Infra", client.ObjectKey{Namespace: "clusters", Name: "demo"}, "one")
	f.record(w, refused, problem.Failed(problem.StatusNotWritten, model.ParseRef("Infra", "clusters/demo"), "x"))
	f.recordServices("clusters/demo", map[netip.AddrPort]error{netip.MustParseAddrPort("192.0.2.1:443"): refused})
	f.recordLeftovers("", "clusters/old", refused)
	var texts []string
	for _, p := range f.problems(time.Now().Add(time.Minute)) {
		texts = append(texts, fmt.Sprintf("%s %s %s", p.Severity, p.Code, p.Object))
	}
	slices.Sort(texts)
	want := []string{"fail ServiceUnreachable Service clusters/demo-proxy", "fail StatusNotWritten Infra clusters/demo", "warn LeftInHostedCluster HostedCluster clusters/old"}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
}
