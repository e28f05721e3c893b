package control

import (
	"errors"
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
