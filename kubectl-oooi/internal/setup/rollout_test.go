package setup

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	infrastatus "github.com/densityops/oooi/kubectl-oooi/internal/status"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestResolveFlags runs the transcript testdata/flags.txt: "first FLAGS", or "FLAGS after REMEMBERED [of INFRA]".
func TestResolveFlags(t *testing.T) {
	golden.Transcript(t, "testdata/flags.txt", func(line string) []string {
		flags, remembered, later := strings.Cut(strings.TrimPrefix(line, "first "), " after ")
		var given map[string]string
		lab.Must(t, yaml.Unmarshal([]byte(flags), &given))
		var before *Remembered
		if later {
			text, infra, _ := strings.Cut(remembered, " of ")
			lab.Must(t, yaml.UnmarshalStrict([]byte(text), &before))
			before.Source = infra
		}
		now, lines := ResolveFlags(given, before, render.Images{Oooi: "example.com/oooi:v2", Envoy: "example.com/envoy:v2"})
		text, err := json.Marshal(now)
		lab.Must(t, err)
		if now.Source != "" {
			t.Errorf("%s: what is remembered is of %s", line, now.Source)
		}
		return append([]string{string(text)}, lines...)
	})
}

func TestMirroredImage(t *testing.T) {
	const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, tc := range []struct{ image, registry, mirrored string }{
		{"ghcr.io/densityops/oooi" + digest, "mirror.example.com:5000/oooi", "mirror.example.com:5000/oooi/oooi" + digest},
		{"docker.io/envoyproxy/envoy:v1", "mirror.example.com", "mirror.example.com/envoy:v1"},
		{"docker.io/envoyproxy/envoy:v1", "mirror.example.com/", "mirror.example.com/envoy:v1"},
		{"docker.io/envoyproxy/envoy:v1", "", "docker.io/envoyproxy/envoy:v1"},
	} {
		if got := MirroredImage(tc.image, tc.registry); got != tc.mirrored {
			t.Errorf("%s in %q: %s, want %s", tc.image, tc.registry, got, tc.mirrored)
		}
	}
}

// TestImageWithoutRelease checks that such a plugin keeps images, and lacks default images.
func TestImageWithoutRelease(t *testing.T) {
	none := render.Images{Envoy: "example.com/envoy:v2"}
	for _, tc := range []struct {
		name   string
		given  map[string]string
		before *Remembered
		image  string
		lines  int
	}{
		{name: "first"},
		{name: "given", given: map[string]string{FlagImage: "mirror/oooi:1"}, image: "mirror/oooi:1"},
		{name: "of a release", before: &Remembered{Image: "example.com/oooi@sha256:00", EnvoyImage: none.Envoy}, image: "example.com/oooi@sha256:00", lines: 1},
		{name: "given before", before: &Remembered{Image: "mirror/oooi:1", EnvoyImage: none.Envoy, Given: []string{FlagImage}}, image: "mirror/oooi:1", lines: 1},
		{name: "reset", given: map[string]string{FlagImage: ""}, before: &Remembered{Image: "mirror/oooi:1", EnvoyImage: none.Envoy, Given: []string{FlagImage}}},
	} {
		now, lines := ResolveFlags(tc.given, tc.before, none)
		if now.Image != tc.image || len(lines) != tc.lines {
			t.Errorf("%s: image %q, lines %q", tc.name, now.Image, lines)
		}
		if given := tc.image == "mirror/oooi:1"; given != slices.Contains(now.Given, FlagImage) {
			t.Errorf("%s: given %q", tc.name, now.Given)
		}
	}
}

func TestOlder(t *testing.T) {
	for _, tc := range []struct {
		a, b  string
		older bool
	}{
		{"v0.9.0", "v0.10.0", true}, {"v0.10.0", "v0.9.0", false}, {"v1.0.0", "v1.0.0", false}, {"v1.0.0-rc.1", "v1.0.0", true},
		{"(devel)", "v1.0.0", false}, {"v1.0.0", "", false},
		{"v0.0.0-20260101000000-aaaaaaaaaaaa", "v0.0.0-20260201000000-bbbbbbbbbbbb+dirty", true},
	} {
		if got := Older(tc.a, tc.b); got != tc.older {
			t.Errorf("Older(%q, %q) = %t", tc.a, tc.b, got)
		}
	}
}

func TestGraceOfPods(t *testing.T) {
	waiting := func(reason string, restarts int32) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{RestartCount: restarts, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
		}}}
	}
	for _, tc := range []struct {
		name  string
		pod   *corev1.Pod
		event *corev1.Event
		want  time.Duration
	}{
		{"starting", waiting("ContainerCreating", 0), nil, -1},
		{"failing probes", &corev1.Pod{}, &corev1.Event{Reason: "Unhealthy"}, -1},
		{"an image that cannot be pulled", waiting("ImagePullBackOff", 0), nil, 15 * time.Second},
		{"an invalid image name", waiting("InvalidImageName", 0), nil, 0},
		{"restarted once", waiting("CrashLoopBackOff", 1), nil, 15 * time.Second},
		{"restarted twice", waiting("CrashLoopBackOff", 2), nil, 5 * time.Second},
		{"restarted twice, and running", &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 2}}}}, nil, 5 * time.Second},
		{"restarted twice, and ready", &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{RestartCount: 2, Ready: true}}}}, nil, -1},
		{"a program that does not exist", waiting("RunContainerError", 0), nil, 15 * time.Second},
		{"not scheduled", &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}}}, &corev1.Event{Reason: "FailedScheduling"}, 20 * time.Second},
		{"no network at first, then running", &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
			{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}}, &corev1.Event{Reason: "FailedCreatePodSandBox"}, -1},
		{"no network", waiting("ContainerCreating", 0), &corev1.Event{Reason: "FailedCreatePodSandBox"}, 20 * time.Second},
	} {
		if got := infrastatus.StuckAfter(tc.pod, tc.event); got != tc.want {
			t.Errorf("%s: the grace period is %s, want %s", tc.name, got, tc.want)
		}
	}
}

func TestShortenProgress(t *testing.T) {
	const image = `StatefulSet a/b: pod b-0: container c: ImagePullBackOff: Back-off pulling image "x": ErrImagePull: and so on`
	if got := shorten(image); got != "StatefulSet a/b: pod b-0: container c: ImagePullBackOff" {
		t.Errorf("shortened to %q", got)
	}
	if shorten("pod b-0: c: CrashLoopBackOff: back-off 10s restarting") != shorten("pod b-0: c: CrashLoopBackOff: back-off 20s restarting") {
		t.Error("messages that differ only in the countdown are not shortened to the same text")
	}
}
