package cmd

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestImagesAreRemembered(t *testing.T) {
	s := newSite(t)
	s.Setup()
	release := s.Images()["coredns"]
	const image, envoy = "registry.example.com/oooi:1", "registry.example.com/envoy:1"
	for _, tc := range []struct {
		name        string
		flags       []string
		oooi, envoy string
		want        []string
	}{
		{"set", []string{"--image", image, "--envoy-image", envoy}, image, envoy, nil},
		{"not set", nil, image, envoy, []string{"--image " + image + " is kept from the previous setup; --image= resets it\n", "--envoy-image " + envoy + " is kept"}},
		{"one of the two", []string{"--image", image + "2"}, image + "2", envoy, []string{"--envoy-image " + envoy + " is kept"}},
		{"reset", []string{"--image="}, release, envoy, []string{"--envoy-image " + envoy + " is kept"}},
		{"not set after a reset", nil, release, envoy, []string{"--envoy-image " + envoy + " is kept"}},
	} {
		stderr := s.Setup(tc.flags...)
		images := s.Images()
		for container, want := range map[string]string{"coredns": tc.oooi, "coredhcp": tc.oooi, "xdsd": tc.oooi, "envoy": tc.envoy} {
			if images[container] != want {
				t.Errorf("%s: %s runs from %q, want %q", tc.name, container, images[container], want)
			}
		}
		for _, want := range tc.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: stderr %q, want %q", tc.name, stderr, want)
			}
		}
		if got := strings.Count(stderr, " is kept"); got != len(tc.want) {
			t.Errorf("%s: setup keeps %d values, want %d: %s", tc.name, got, len(tc.want), stderr)
		}
	}
}

// TestImagesAreKeptWithoutRememberedFlags removes the remembered flags, as after setup by a version that did not
// store them.
func TestImagesAreKeptWithoutRememberedFlags(t *testing.T) {
	s := newSite(t)
	s.Infra = strings.Replace(s.Infra, "dns: {", "dns: {image: registry.example.com/dns:1, ", 1)
	s.Setup()
	release := s.Images()
	s.Setup("--image", "registry.example.com/oooi:1")
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = s.Namespace, "demo-oooi-inventory"
	if err := s.Client.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{"data": {"setup.yaml": null}}`))); err != nil {
		t.Fatal(err)
	}
	if stderr := s.Setup(); !strings.Contains(stderr, "--image registry.example.com/oooi:1 is kept") || strings.Contains(stderr, "StatefulSet") {
		t.Errorf("setup does not keep the image: %s", stderr)
	}
	if images := s.Images(); images["coredhcp"] != "registry.example.com/oooi:1" || images["coredns"] != "registry.example.com/dns:1" || images["envoy"] != release["envoy"] {
		t.Errorf("the images are %s", images)
	}
}

func TestANewInfraUsesTheImageOfControl(t *testing.T) {
	const image = "registry.example.com/oooi:7"
	first, second := newSite(t), newSite(t)
	if stderr := first.Setup("--image", image); strings.Contains(stderr, "--image") {
		t.Errorf("the first setup printed %s", stderr)
	}
	stderr := second.Setup()
	if !strings.Contains(stderr, "--image "+image+" is the image of control, which all Infras share; --image= resets it\n") || strings.Contains(stderr, "Deployment oooi-system/oooi-control") || second.Images()["coredns"] != image {
		t.Errorf("setup of another Infra: images %v, stderr %s", second.Images(), stderr)
	}
	second.Setup("--image=") // other tests share control
}
