package proxy_test

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

func TestRejectedResourcesAreReportedAndDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.controlPlane(t)
	s.report()
	in := func(label string) string { return label + "." + s.domain }
	good := s.ca.TLSBackend(t, s.at(21, 443), "good", in("good"), in("taken"))
	s.update(t, service("apps-"+s.name, "good", 443, good.Addr()))
	s.start(t)
	stream := s.startStream(t, 443, hello{sni: in("oauth")}, "oauth-openshift")
	lab.Poll(t, "the replica to acknowledge everything", func() bool { r := s.replica(t); return r.Acknowledged != "" && r.Acknowledged == r.Version })

	// Another process uses the port, which only Envoy can detect.
	other, err := new(net.ListenConfig).Listen(t.Context(), "tcp", s.at(3, 7443))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	taken := strings.Replace(s.backend("taken", in("taken"), "good", ""), "port: 443", "port: 7443", 1)
	s.update(t, s.proxyServer(taken, s.backend("good", in("good"), "good", "")))
	s.await(t, 443, hello{sni: in("good")}, "good")
	owner := fmt.Sprintf("listener port-7443 of ProxyServer clusters/%s spec.backends[0] taken: ", s.name)
	lab.Poll(t, "the NACK in the status", func() bool {
		nack := s.replica(t).NACK
		return strings.HasPrefix(nack, owner) && strings.Contains(nack, "Address already in use")
	})
	nacked := s.replica(t)
	if nacked.Acknowledged == nacked.Version {
		t.Errorf("the replica's status has no pending version: %+v", nacked)
	}
	if n := s.nacks(t); n == 0 {
		t.Error("the metric does not count the NACK")
	}
	if n := len(s.xdsd.Log.Lines("level=WARN", "port-7443", "Address already in use")); n != 1 {
		t.Errorf("the NACK is logged %d times, want once", n)
	}

	// Other changes are served, listeners too, and the NACK stays reported.
	for round := range 3 {
		added := in(fmt.Sprintf("more%d", round))
		s.ca.TLSBackend(t, s.at(31+round, 443), "more", added)
		s.update(t, service("apps-"+s.name, fmt.Sprint("more", round), 443, addrPort(s.at(31+round, 443)))+
			s.proxyServer(taken, s.backend("more", added, fmt.Sprint("more", round), "")))
		s.await(t, 443, hello{sni: added}, "more")
	}
	if nack := s.replica(t).NACK; !strings.HasPrefix(nack, owner) {
		t.Errorf("after other changes the NACK is %q", nack)
	}

	// Once the port is free, Envoy gets the listener again without a change, and the NACK disappears.
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	s.await(t, 7443, hello{sni: in("taken")}, "good")
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
	client, err := dynamic.NewForConfig(s.cp.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	object, err := client.Resource(v1alpha1.SchemeGroupVersion.WithResource("proxyservers")).Namespace("clusters").Get(t.Context(), s.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(object.Object["status"])
	if err != nil {
		t.Fatal(err)
	}
	var status v1alpha1.ProxyServerStatus
	if err := json.Unmarshal(data, &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Replicas) == 0 {
		return v1alpha1.ReplicaStatus{}
	}
	return status.Replicas[0]
}

// nacks returns the number of rejected listener updates in the metrics.
func (s *site) nacks(t *testing.T) int {
	t.Helper()
	_, text, err := s.xdsd.get(t, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, fmt.Sprintf(`xdsd_ads_nacks_total{proxy="clusters/%s",type="listener"} `, s.name)); ok {
			if _, err := fmt.Sscan(value, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
		}
	}
	return n
}
