package selector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

func service(name string, seconds int64) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(seconds, 0))}}
}

func TestChoose(t *testing.T) {
	old, young, twin := service("z-old", 1), service("a-young", 2), service("b-young", 2)
	labels := map[string]string{"b": "2", "a": "1"}
	const none = "no Service in namespace web has the labels a=1,b=2"
	const several = "3 Services in namespace web have the labels a=1,b=2: z-old, a-young, b-young; set onMultiple, or add labels that distinguish them"
	for _, tc := range []struct {
		name    string
		found   []*corev1.Service
		policy  v1alpha1.OnMultiple
		last    string
		want    string
		fault   Fault
		message string
	}{
		{"none", nil, v1alpha1.OnMultipleFail, "z-old", "", NoMatch, none},
		{"none, with policy Newest", nil, v1alpha1.OnMultipleNewest, "", "", NoMatch, none},
		{"one", []*corev1.Service{old}, v1alpha1.OnMultipleFail, "", "z-old", None, ""},
		{"one under another name", []*corev1.Service{young}, v1alpha1.OnMultipleFail, "z-old", "a-young", None, ""},
		{"several", []*corev1.Service{twin, young, old}, v1alpha1.OnMultipleFail, "", "", Several, several},
		{"several without a policy", []*corev1.Service{twin, young, old}, "", "", "", Several, several},
		{"several, one in use", []*corev1.Service{twin, young, old}, v1alpha1.OnMultipleFail, "a-young", "a-young", Several, several + "; a-young, selected before, stays in use"},
		{"several, the one in use deleted", []*corev1.Service{twin, young, old}, v1alpha1.OnMultipleFail, "deleted", "", Several, several},
		{"the oldest", []*corev1.Service{twin, young, old}, v1alpha1.OnMultipleOldest, "a-young", "z-old", None, ""},
		{"the newest, of two created in the same second the last by name", []*corev1.Service{twin, young, old}, v1alpha1.OnMultipleNewest, "z-old", "b-young", None, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Choose(tc.found, "web", labels, tc.policy, tc.last)
			name := ""
			if c.Service != nil {
				name = c.Service.Name
			}
			if name != tc.want || c.Fault != tc.fault || c.Message != tc.message {
				t.Errorf("selected %q, fault %d, message %q", name, c.Fault, c.Message)
			}
		})
	}
}

func TestMessageNamesTenServices(t *testing.T) {
	var found []*corev1.Service
	for i := range 500 {
		found = append(found, service(fmt.Sprintf("s-%03d", i), int64(i)))
	}
	c := Choose(found, "web", map[string]string{"a": "1"}, "", "")
	if !strings.Contains(c.Message, "s-009, and 490 more; set onMultiple") {
		t.Error(c.Message)
	}
}

func TestMatches(t *testing.T) {
	has := map[string]string{"a": "1", "b": "2", "empty": ""}
	for _, tc := range []struct {
		want  map[string]string
		match bool
	}{
		{nil, false},
		{map[string]string{}, false},
		{map[string]string{"a": "1"}, true},
		{map[string]string{"a": "1", "b": "2"}, true},
		{map[string]string{"a": "1", "b": "1"}, false},
		{map[string]string{"c": ""}, false},
		{map[string]string{"empty": ""}, true},
	} {
		if got := Matches(has, tc.want); got != tc.match {
			t.Errorf("%v: %v", tc.want, got)
		}
	}
}
