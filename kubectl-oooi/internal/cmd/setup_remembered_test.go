package cmd

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestImagesAreKept(t *testing.T) {
	s := newSite(t)
	s.Setup()
	release := s.Images()["coredns"]
	const image, envoy = "registry.example.com/oooi:1", "registry.example.com/envoy:1"
	for _, tc := range []struct {
		name        string
		flags       []string
		oooi, envoy string
		says        []string
	}{
		{"given", []string{"--image", image, "--envoy-image", envoy}, image, envoy, nil},
		{"left out", nil, image, envoy, []string{"--image " + image + " is kept from the previous setup; --image= resets it\n", "--envoy-image " + envoy + " is kept"}},
		{"one of the two", []string{"--image", image + "2"}, image + "2", envoy, []string{"--envoy-image " + envoy + " is kept"}},
		{"reset", []string{"--image="}, release, envoy, []string{"--envoy-image " + envoy + " is kept"}},
		{"left out after a reset", nil, release, envoy, []string{"--envoy-image " + envoy + " is kept"}},
	} {
		said := s.Setup(tc.flags...)
		is := s.Images()
		for container, want := range map[string]string{"coredns": tc.oooi, "coredhcp": tc.oooi, "xdsd": tc.oooi, "envoy": tc.envoy} {
			if is[container] != want {
				t.Errorf("%s: %s runs from %q, want %q", tc.name, container, is[container], want)
			}
		}
		for _, want := range tc.says {
			if !strings.Contains(said, want) {
				t.Errorf("%s: setup said %q, want %q", tc.name, said, want)
			}
		}
		if got := strings.Count(said, " is kept"); got != len(tc.says) {
			t.Errorf("%s: setup said %d times that it keeps something: %s", tc.name, got, said)
		}
	}
}

// TestImagesAreKeptOfASiteThatRemembersNothing: it was set up by an earlier version.
func TestImagesAreKeptOfASiteThatRemembersNothing(t *testing.T) {
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
	if said := s.Setup(); !strings.Contains(said, "--image registry.example.com/oooi:1 is kept") || strings.Contains(said, "StatefulSet") {
		t.Errorf("setup said %s", said)
	}
	if is := s.Images(); is["coredhcp"] != "registry.example.com/oooi:1" || is["coredns"] != "registry.example.com/dns:1" || is["envoy"] != release["envoy"] {
		t.Errorf("pods run from %s", is)
	}
}

func TestANewInfraKeepsTheImageOfControl(t *testing.T) {
	const image = "registry.example.com/oooi:7"
	first, second := newSite(t), newSite(t)
	first.Setup("--image", image)
	said := second.Setup()
	if !strings.Contains(said, "--image "+image+" is kept") || strings.Contains(said, "Deployment oooi-system/oooi-control") || second.Images()["coredns"] != image {
		t.Errorf("setup of another Infra has %v and said %s", second.Images(), said)
	}
	second.Setup("--image=") // control is shared with other tests
}
