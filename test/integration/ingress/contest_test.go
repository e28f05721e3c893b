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

// TestTwoManagersDoNotChaseEachOther has one that puts back its own idea of the Ingress whenever
// that changes, as fast as it can, and counts what comes of it.
func TestTwoManagersDoNotChaseEachOther(t *testing.T) {
	cp := cluster.Get(t)
	start(t, cp)
	s := newSite(t, cp)
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualOf("web", "app: web", "number: 80", ""))
	s.awaitReason("web", v1alpha1.ReasonResolved)

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- contend(ctx, t, s) }()
	if message := s.awaitReason("web", v1alpha1.ReasonContested); !strings.HasPrefix(message, "somebody keeps changing Ingress web-generated") {
		t.Errorf("it says %s", message)
	}
	const lasting = 8 * time.Second
	time.Sleep(lasting)
	cancel()
	// At once, and after 1, 2 and 4 seconds; whoever is quick may see one more begin.
	if changes := <-ended; changes < 2 || changes > 6 {
		t.Errorf("in %s the other one had to put its own back %d times", lasting, changes)
	}
	// It gives up, and the Ingress is put right in the end.
	s.awaitBackend("web-generated", "first")
	s.awaitReason("web", v1alpha1.ReasonResolved)
}

// contend keeps the Ingress leading to a Service of its own, and returns how often it had to see to
// that.
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

// TestARestartedContainerLeadsAtOnce kills a replica that has the name and the UID of its pod, and
// starts it again: nobody else may have its Lease.
func TestARestartedContainerLeadsAtOnce(t *testing.T) {
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
		t.Errorf("it led again after %s", took)
	}
	// Another pod waits, also one of the same name.
	other := newReplica(t, cp, "other", account("oooi-system"), "--lease-duration", "60s", "--identity", "oooi-ingress-7d4b9_0c2e")
	other.Start(t)
	await(t, "the other one to be ready", func() string {
		if status, _ := other.get(t, "/readyz"); status != 200 {
			return "it is not"
		}
		return ""
	})
	time.Sleep(3 * time.Second)
	if other.state(t).Leads {
		t.Error("the other one leads as well")
	}
	// One that ends gives up the Lease.
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
	await(t, "the second to be ready", func() string {
		if status, _ := two.get(t, "/readyz"); status != 200 || two.state(t).Leads {
			return "it is not, or leads"
		}
		return ""
	})
	s.service("first", "app: web", "{port: 80}")
	s.apply(virtualOf("web", "app: web", "number: 80", ""))
	s.awaitBackend("web-generated", "first")
	one.Kill(t)
	s.removeService("first")
	s.service("second", "app: web", "{port: 80}")
	two.awaitLead(t)
	s.awaitBackend("web-generated", "second")
	// Who ends in peace gives up the lead at once.
	one.Start(t)
	two.Terminate(t)
	one.awaitLead(t)
	one.Terminate(t)
}
