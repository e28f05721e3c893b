package ingress_test

import (
	"context"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestContestedIngressIsUpdatedWithBackoff runs a second manager that reverts every change of the Ingress as
// fast as it can, and counts its updates.
func TestContestedIngressIsUpdatedWithBackoff(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))
	s.awaitReason("web", v1alpha1.ReasonResolved)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- contend(ctx, t, s) }()
	if message := s.awaitReason("web", v1alpha1.ReasonContested); !strings.HasPrefix(message, "another client keeps changing Ingress web-generated") {
		t.Errorf("message %q", message)
	}
	const duration = 8 * time.Second
	time.Sleep(duration)
	cancel()
	// The daemon updates immediately and after 1, 2 and 4 seconds. The count may include one more update.
	if changes := <-ended; changes < 2 || changes > 6 {
		t.Errorf("in %s the other manager reverted %d updates", duration, changes)
	}
	// When the other manager stops, the Ingress is corrected.
	s.awaitBackend("web-generated", "first")
	s.awaitReason("web", v1alpha1.ReasonResolved)
}

// contend changes the Ingress to another Service whenever it leads to a different one, and returns the number
// of its updates.
func contend(ctx context.Context, t *testing.T, s *site) (times int) {
	c, err := client.NewWithWatch(s.cp.RESTConfig(), client.Options{})
	if err != nil {
		t.Error(err)
		return 0
	}
	w, err := c.Watch(ctx, &networkingv1.IngressList{}, client.InNamespace(s.namespace))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return times
		case e, open := <-w.ResultChan():
			if !open {
				return times
			}
			i, ok := e.Object.(*networkingv1.Ingress)
			if !ok || e.Type == watch.Deleted || i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name == "theirs" {
				continue
			}
			patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/rules/0/http/paths/0/backend/service/name","value":"theirs"}]`))
			if err := c.Patch(ctx, i, patch); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			times++
		}
	}
}

// TestRestartedContainerLeadsImmediately kills and restarts a replica whose identity is the name and the UID
// of its pod, so that only it can renew the Lease.
func TestRestartedContainerLeadsImmediately(t *testing.T) {
	cp := cluster.Get(t)
	install(t, cp)
	r := newReplica(t, cp, "one", account("oooi-system"), "--lease-duration", "60s", "--identity", "oooi-ingress-7d4b9_6a1f")
	r.Start(t)
	r.awaitLead(t)
	r.Kill(t)
	r.Start(t)
	began := time.Now()
	r.awaitLead(t)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the replica led again after %s", took)
	}
	// A replica with another pod UID waits for the Lease to expire, even with the same pod name.
	other := newReplica(t, cp, "other", account("oooi-system"), "--lease-duration", "60s", "--identity", "oooi-ingress-7d4b9_0c2e")
	other.Start(t)
	await(t, "the other replica to be ready", func() string {
		if status, _ := other.get(t, "/readyz"); status != 200 {
			return "not ready"
		}
		return ""
	})
	time.Sleep(3 * time.Second)
	if other.state(t).Leads {
		t.Error("two replicas lead")
	}
	// A replica that is terminated releases the Lease.
	r.Terminate(t)
	other.awaitLead(t)
	other.Terminate(t)
}

func TestAnotherReplicaTakesOver(t *testing.T) {
	cp := cluster.Get(t)
	install(t, cp)
	s := newSite(t, cp)
	one := newReplica(t, cp, "one", account("oooi-system"), "--lease-duration", "6s")
	two := newReplica(t, cp, "two", account("oooi-system"), "--lease-duration", "6s")
	one.Start(t)
	one.awaitLead(t)
	two.Start(t)
	await(t, "the second replica to be ready", func() string {
		if status, _ := two.get(t, "/readyz"); status != 200 || two.state(t).Leads {
			return "not ready, or leading"
		}
		return ""
	})
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))
	s.awaitBackend("web-generated", "first")
	one.Kill(t)
	s.removeService("first")
	s.service("second", "app: web", "{port: 80}")
	two.awaitLead(t)
	s.awaitBackend("web-generated", "second")
	// A replica that is terminated releases the Lease immediately.
	one.Start(t)
	two.Terminate(t)
	one.awaitLead(t)
	one.Terminate(t)
}
