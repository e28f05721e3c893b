package ingress_test

import (
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// TestRestartedContainerLeadsImmediately kills and restarts a replica whose identity is the name and the UID
// of its pod, so that only it can renew the Lease. Another one leads when the first is terminated.
func TestRestartedContainerLeadsImmediately(t *testing.T) {
	cp := cluster.Get(t)
	install(t, cp)
	s := newSite(t)
	s.Service("first", "app: web", "{port: 80}")
	s.Apply(virtualIngress("web"))
	r := newReplica(t, cp, "one", account("oooi-system"), "--lease-duration", "60s", "--identity", "oooi-ingress-7d4b9_6a1f")
	r.Lead(t)
	s.AwaitBackend("web-generated", "first")
	r.Kill(t)
	began := time.Now()
	r.Lead(t)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the replica led again after %s", took)
	}
	// A replica with another pod UID waits for the Lease to expire, even with the same pod name.
	other := newReplica(t, cp, "other", account("oooi-system"), "--lease-duration", "60s", "--identity", "oooi-ingress-7d4b9_0c2e")
	other.Start(t)
	lab.Poll(t, "the other replica to be ready", func() bool { status, _ := other.Get(t, "/readyz"); return status == 200 })
	time.Sleep(2 * time.Second)
	if other.State(t).Leads {
		t.Error("two replicas lead")
	}
	r.Terminate(t)
	s.RemoveService("first")
	s.Service("second", "app: web", "{port: 80}")
	other.AwaitLead(t)
	s.AwaitBackend("web-generated", "second")
	other.Terminate(t)
}

// TestReplicasStartDuringAnOutage starts replicas while the API server is down: they do not exit, which would delay the next start by
// up to five minutes, but when they are terminated. One leads when the API server is back.
func TestReplicasStartDuringAnOutage(t *testing.T) {
	cp := cluster.Get(t)
	install(t, cp)
	outage := lab.StartOutage(t, cp)
	first, second := newReplica(t, cp, "first", account("oooi-system")), newReplica(t, cp, "second", account("oooi-system"))
	for _, r := range []*lab.Replica{first, second} {
		r.Start(t)
		r.AwaitResponse(t)
	}
	second.Terminate(t)
	outage.End(t)
	first.AwaitLead(t)
	first.Terminate(t)
}
