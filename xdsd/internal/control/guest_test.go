package control

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFaultsAreRetriedLaterAndLater: the wait doubles up to two minutes, for each Infra by itself.
func TestFaultsAreRetriedLaterAndLater(t *testing.T) {
	r := &guestReconciler{retry: newRetry()}
	key := client.ObjectKey{Namespace: "clusters", Name: "demo"}
	want := firstRetry
	for range 12 {
		got := r.later(key).RequeueAfter
		if got < want || got > want+want/5 {
			t.Errorf("waits %s, want %s or up to a fifth more", got, want)
		}
		want = min(2*want, lastRetry)
	}
	if got := r.later(client.ObjectKey{Namespace: "clusters", Name: "other"}).RequeueAfter; got > 2*time.Second {
		t.Errorf("another Infra waits %s", got)
	}
	r.retry.Forget(key)
	if got := r.later(key).RequeueAfter; got > 2*time.Second {
		t.Errorf("after a success it waits %s", got)
	}
}
