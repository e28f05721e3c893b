package control

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFaultsAreRetriedWithBackoff checks that the wait doubles up to two minutes, for each Infra separately.
func TestFaultsAreRetriedWithBackoff(t *testing.T) {
	r := &guestReconciler{retry: newRetry()}
	key := client.ObjectKey{Namespace: "clusters", Name: "demo"}
	want := firstRetry
	for range 12 {
		got := r.retryLater(key).RequeueAfter
		if got < want || got > want+want/5 {
			t.Errorf("got wait %s, want %s or up to a fifth more", got, want)
		}
		want = min(2*want, lastRetry)
	}
	if got := r.retryLater(client.ObjectKey{Namespace: "clusters", Name: "other"}).RequeueAfter; got > 2*time.Second {
		t.Errorf("got wait %s of another Infra", got)
	}
	r.retry.Forget(key)
	if got := r.retryLater(key).RequeueAfter; got > 2*time.Second {
		t.Errorf("got wait %s after a success", got)
	}
}
