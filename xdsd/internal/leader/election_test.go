package leader

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestLastRenewed(t *testing.T) {
	e, at := &Election{}, metav1.Now()
	if _, renewed := e.LastRenewed(); !renewed.IsZero() {
		t.Errorf("renewed at %s, before the first request", renewed)
	}
	e.observe(nil)
	_, first := e.LastRenewed()
	if first.IsZero() {
		t.Error("the time of the first request is not known")
	}
	e.observe(&resourcelock.LeaderElectionRecord{HolderIdentity: "a", RenewTime: at})
	holder, second := e.LastRenewed()
	if holder != "a" || !second.After(first) {
		t.Errorf("held by %q since %s, first requested at %s", holder, second, first)
	}
	for _, record := range []*resourcelock.LeaderElectionRecord{{HolderIdentity: "a", RenewTime: at}, nil} {
		e.observe(record)
		if _, renewed := e.LastRenewed(); !renewed.Equal(second) {
			t.Errorf("renewed at %s by %v, want %s", renewed, record, second)
		}
	}
	e.observe(&resourcelock.LeaderElectionRecord{HolderIdentity: "a", RenewTime: metav1.NewTime(at.Add(time.Second))})
	if _, renewed := e.LastRenewed(); !renewed.After(second) {
		t.Errorf("renewed at %s, want later than %s", renewed, second)
	}
}
