package control

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

func TestReplicasThatStopReporting(t *testing.T) {
	for _, tc := range []struct {
		name string
		// heartbeats of replicas a and b at each check, in minutes; 0 for none
		a, b []int
		// outdated are the checks at which what control reads is not current.
		outdated    []int
		readyReason string // reason of the condition Ready
		want        []string
	}{
		{name: "both report", a: []int{1, 2, 3, 4, 5}, b: []int{9, 8, 7, 6, 5}, want: []string{"", "", "", "", ""}},
		{name: "one stops and reports again", a: []int{1, 1, 1, 1, 2}, b: []int{1, 2, 3, 4, 5}, want: []string{"", "", "", "a", ""}},
		{name: "one has a version without heartbeats", a: []int{0, 0, 0, 0, 0}, b: []int{1, 2, 3, 4, 5}, want: []string{"", "", "", "", ""}},
		{name: "the API server is unavailable", a: []int{1, 1, 1, 1, 1, 2}, b: []int{1, 1, 1, 1, 1, 2}, outdated: []int{1, 2, 3}, want: []string{"", "", "", "", "", ""}},
		{name: "the API server is unavailable while one is silent", a: []int{1, 1, 1, 1, 1, 2}, b: []int{1, 2, 3, 4, 4, 5}, outdated: []int{4}, want: []string{"", "", "", "a", "a", ""}},
		{name: "one was silent under the previous leader", a: []int{-99, -99, 3}, b: []int{1, 2, 3}, readyReason: v1alpha1.ReasonReplicaSilent, want: []string{"a", "a", ""}},
		{name: "both reported under the previous leader", a: []int{-99, -99, -99, -99}, b: []int{1, 2, 3, 4}, readyReason: v1alpha1.ReasonDeploymentReady, want: []string{"", "", "", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			object, state := &v1alpha1.ProxyServer{}, &proxyState{}
			if tc.readyReason != "" {
				object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: tc.readyReason}}
			}
			for i, want := range tc.want {
				object.Status.Replicas = nil
				for pod, minute := range map[string]int{"a": tc.a[i], "b": tc.b[i]} {
					r := v1alpha1.ReplicaStatus{Pod: pod}
					if minute != 0 {
						r.HeartbeatTime = metav1.NewTime(start.Add(time.Duration(minute) * time.Minute))
					}
					object.Status.Replicas = append(object.Status.Replicas, r)
				}
				for _, later := range []time.Duration{0, time.Second} {
					now := start.Add(time.Duration(i)*time.Minute + later)
					silent := state.silent(object, now, !slices.Contains(tc.outdated, i), time.Minute)
					if got := strings.Join(slices.Sorted(maps.Keys(silent)), ","); got != want {
						t.Errorf("check %d: silent is %q, want %q", i, got, want)
					}
				}
			}
		})
	}
}
