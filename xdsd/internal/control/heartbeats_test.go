package control

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/densityops/oooi/api/v1alpha1"
)

func TestReplicasThatStopReportingAreSilent(t *testing.T) {
	const unavailable = -1 // the API server is unavailable
	for _, tc := range []struct {
		name string
		// heartbeats of replicas a and b at each check, in minutes; 0 for none
		a, b        []int
		readyReason string // reason of the condition Ready before the first check
		want        []string
	}{
		{name: "both report", a: []int{1, 2, 3, 4, 5}, b: []int{9, 8, 7, 6, 5}, want: []string{"", "", "", "", ""}},
		{name: "one stops and reports again", a: []int{1, 1, 1, 1, 2}, b: []int{1, 2, 3, 4, 5}, want: []string{"", "", "", "a", ""}},
		{name: "one has a version without heartbeats", a: []int{0, 0, 0, 0, 0}, b: []int{1, 2, 3, 4, 5}, want: []string{"", "", "", "", ""}},
		{name: "the API server is unavailable", a: []int{1, unavailable, unavailable, unavailable, 1, 2}, b: []int{1, unavailable, unavailable, unavailable, 1, 2}, want: []string{"", "error", "error", "error", "", ""}},
		{name: "one was silent under the previous leader", a: []int{-99, -99, 3}, b: []int{1, 2, 3}, readyReason: v1alpha1.ReasonReplicaSilent, want: []string{"a", "a", ""}},
		{name: "both reported under the previous leader", a: []int{-99, -99, -99, -99}, b: []int{1, 2, 3, 4}, readyReason: v1alpha1.ReasonDeploymentReady, want: []string{"", "", "", "a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			object := &v1alpha1.ProxyServer{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo"}}
			if tc.readyReason != "" {
				object.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: tc.readyReason}}
			}
			outage := false
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(object).WithStatusSubresource(object).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
					if outage {
						return errors.New("unavailable")
					}
					return c.Get(ctx, key, o, options...)
				},
			}).Build()
			h := newHeartbeats(c, time.Minute)
			key := client.ObjectKeyFromObject(object)
			for i, want := range tc.want {
				outage = tc.a[i] == unavailable
				object.Status.Replicas = nil
				for pod, minute := range map[string]int{"a": tc.a[i], "b": tc.b[i]} {
					r := v1alpha1.ReplicaStatus{Pod: pod}
					if minute != 0 {
						r.HeartbeatTime = metav1.NewTime(start.Add(time.Duration(minute) * time.Minute))
					}
					object.Status.Replicas = append(object.Status.Replicas, r)
				}
				if err := c.Status().Update(t.Context(), object); err != nil {
					t.Fatal(err)
				}
				now := start.Add(time.Duration(i) * time.Minute)
				silent, err := h.silent(t.Context(), key, now)
				got := strings.Join(slices.Sorted(maps.Keys(silent)), ",")
				if err != nil {
					got = "error"
				}
				if got != want {
					t.Errorf("check %d: silent is %q, want %q", i, got, want)
				}
				if again, err := h.silent(t.Context(), key, now.Add(time.Second)); err == nil && len(again) != len(silent) {
					t.Errorf("check %d: another check a second later is counted", i)
				}
			}
		})
	}
}
