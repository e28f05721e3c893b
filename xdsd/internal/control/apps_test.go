package control

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFaultsAreRetriedWithBackoff checks that the wait doubles up to two minutes, for each Infra separately.
func TestFaultsAreRetriedWithBackoff(t *testing.T) {
	retry := newRetry()
	key := client.ObjectKey{Namespace: "clusters", Name: "demo"}
	want := firstRetry
	for range 12 {
		if got := retry.When(key); got != want {
			t.Errorf("got wait %s, want %s", got, want)
		}
		want = min(2*want, lastRetry)
	}
	if got := retry.When(client.ObjectKey{Namespace: "clusters", Name: "other"}); got != firstRetry {
		t.Errorf("got wait %s of another Infra", got)
	}
	retry.Forget(key)
	if got := retry.When(key); got != firstRetry {
		t.Errorf("got wait %s after a success", got)
	}
}
