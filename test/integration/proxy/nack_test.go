package proxy_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

func TestRejectedResourcesAreReportedAndDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	good := s.ca.TLSBackend(t, s.at(21, 443), "good", s.in("good"), s.in("taken"))
	s.update(t, service("apps-"+s.name, "good", 443, good.Addr()))
	s.start(t)
	stream := s.startStream(t, 443, hello{sni: s.in("oauth")}, "oauth-openshift")
	lab.Poll(t, "the replica to acknowledge everything", func() bool { r := s.replica(t); return r.Acknowledged != "" && r.Acknowledged == r.Version })

	// Another process uses the port, which only Envoy can detect.
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", s.at(3, 7443))
	lab.Must(t, err)
	t.Cleanup(func() { _ = other.Close() })
	taken := s.backendOn(7443, "TLS", "taken", s.in("taken"), "good", 443, "")
	s.update(t, s.proxyServer(taken, s.backend("good", s.in("good"), "good", "")))
	s.await(t, 443, hello{sni: s.in("good")}, "good")
	owner := fmt.Sprintf("listener port-7443 of ProxyServer clusters/%s spec.backends[0] taken: ", s.name)
	lab.Poll(t, "the NACK in the status", func() bool {
		nack := s.replica(t).NACK
		return strings.HasPrefix(nack, owner) && strings.Contains(nack, "Address already in use")
	})
	nacked := s.replica(t)
	if nacked.Acknowledged == nacked.Version {
		t.Errorf("the replica's status has no pending version: %+v", nacked)
	}
	if s.xdsd.Metric(t, fmt.Sprintf(`xdsd_ads_nacks_total{proxy="clusters/%s",type="listener"}`, s.name)) == 0 {
		t.Error("the metric does not count the NACK")
	}
	if n := len(s.xdsd.Log.Lines("level=WARN", "port-7443", "Address already in use")); n != 1 {
		t.Errorf("the NACK is logged %d times, want once", n)
	}

	// Other changes are served, listeners too, and the NACK stays reported.
	more := s.ca.TLSBackend(t, s.at(31, 443), "more", s.in("more"))
	s.update(t, service("apps-"+s.name, "more", 443, more.Addr()), s.proxyServer(taken, s.backend("more", s.in("more"), "more", "")))
	s.await(t, 443, hello{sni: s.in("more")}, "more")
	if nack := s.replica(t).NACK; !strings.HasPrefix(nack, owner) {
		t.Errorf("after other changes the NACK is %q", nack)
	}

	// Once the port is free, Envoy gets the listener again without a change, and the NACK disappears.
	lab.Must(t, other.Close())
	s.await(t, 7443, hello{sni: s.in("taken")}, "good")
	lab.Poll(t, "the NACK to disappear from the status", func() bool {
		r := s.replica(t)
		return r.NACK == "" && r.Acknowledged == r.Version
	})
	stream.end(t)
	s.check(t)
}

// replica returns the Envoy's entry in the status of the ProxyServer.
func (s *site) replica(t *testing.T) v1alpha1.ReplicaStatus {
	t.Helper()
	p := &v1alpha1.ProxyServer{}
	lab.Must(t, s.cp.Client(t).Get(t.Context(), client.ObjectKey{Namespace: "clusters", Name: s.name}, p))
	if len(p.Status.Replicas) == 0 {
		return v1alpha1.ReplicaStatus{}
	}
	return p.Status.Replicas[0]
}
