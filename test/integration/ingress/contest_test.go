package ingress_test

import (
	"context"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// TestContestedIngressIsUpdatedWithBackoff runs a second manager that reverts every change of the Ingress as
// fast as it can, and counts its updates.
func TestContestedIngressIsUpdatedWithBackoff(t *testing.T) {
	start(t)
	s := newSite(t)
	s.Service("first", "app: web", "{port: 80}")
	s.Apply(virtualIngress("web"))
	s.AwaitReason("web", v1alpha1.ReasonResolved)

	c, err := client.NewWithWatch(s.ControlPlane.RESTConfig(), client.Options{})
	lab.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w, err := c.Watch(ctx, &networkingv1.IngressList{}, client.InNamespace(s.Namespace))
	lab.Must(t, err)
	ended := make(chan int)
	go func() {
		changes := 0
		for e := range w.ResultChan() {
			i, ok := e.Object.(*networkingv1.Ingress)
			if !ok || e.Type == watch.Deleted || i.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name == "theirs" {
				continue
			}
			patch := client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/rules/0/http/paths/0/backend/service/name","value":"theirs"}]`))
			if err := c.Patch(ctx, i, patch); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			changes++
		}
		ended <- changes
	}()
	s.AwaitMessage("web", v1alpha1.ReasonContested, "another client keeps changing Ingress web-generated")
	const duration = 8 * time.Second
	time.Sleep(duration)
	cancel()
	w.Stop()
	// The daemon updates immediately and after 1, 2 and 4 seconds. The count may include one more update.
	if changes := <-ended; changes < 2 || changes > 6 {
		t.Errorf("in %s the other manager reverted %d updates", duration, changes)
	}
	// When the other manager stops, the Ingress is corrected.
	s.AwaitBackend("web-generated", "first")
	s.AwaitReason("web", v1alpha1.ReasonResolved)
}

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
