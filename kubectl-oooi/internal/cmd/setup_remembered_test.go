package cmd

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestImagesAreKeptWithoutRememberedFlags removes the remembered flags, as after setup by a version that did not
// store them.
func TestImagesAreKeptWithoutRememberedFlags(t *testing.T) {
	s := newSite(t)
	s.Infra = strings.Replace(s.Infra, "dns: {", "dns: {image: registry.example.com/dns:1, ", 1)
	s.Setup()
	release := s.Images()
	s.Setup("--image", "registry.example.com/oooi:1")
	s.DeleteRecords()
	if stderr := s.Setup(); !strings.Contains(stderr, "--image registry.example.com/oooi:1 is kept") || strings.Contains(stderr, "StatefulSet") {
		t.Errorf("setup does not keep the image: %s", stderr)
	}
	if images := s.Images(); images["coredhcp"] != "registry.example.com/oooi:1" || images["coredns"] != "registry.example.com/dns:1" || images["envoy"] != release["envoy"] {
		t.Errorf("the images are %s", images)
	}
}

// TestMirrorAndPullSecret sets up from a mirror, and another Infra without flags.
func TestMirrorAndPullSecret(t *testing.T) {
	first, second := newSite(t), newSite(t)
	stderr := first.Setup("--registry", "registry.example.com/oooi", "--image-pull-secret", "mirror")
	for _, namespace := range []string{first.Namespace, "oooi-system"} {
		if want := "Warning: --image-pull-secret: Secret " + namespace + "/mirror does not exist; pods there cannot pull images that need it: create it\n"; !strings.Contains(stderr, want) {
			t.Errorf("setup printed %s, want %q", stderr, want)
		}
	}
	secrets := func(s *testSite) (all []corev1.LocalObjectReference) {
		t.Helper()
		list := &appsv1.StatefulSetList{}
		if err := s.Client.List(t.Context(), list, client.InNamespace(s.Namespace)); err != nil || len(list.Items) != 3 {
			t.Fatalf("listing StatefulSets: %v, %d objects", err, len(list.Items))
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Spec.Template.Spec.ImagePullSecrets...)
		}
		return all
	}
	mirror := corev1.LocalObjectReference{Name: "mirror"}
	check := func(s *testSite) {
		t.Helper()
		for name, image := range s.Images() {
			if !strings.HasPrefix(image, "registry.example.com/oooi/") {
				t.Errorf("container %s has the image %s", name, image)
			}
		}
		if got := secrets(s); !slices.Equal(got, []corev1.LocalObjectReference{mirror, mirror, mirror}) {
			t.Errorf("the StatefulSets have the pull secrets %v", got)
		}
	}
	check(first)
	stderr = second.Setup()
	for _, want := range []string{"--registry registry.example.com/oooi is that of " + first.Namespace + "/demo, which was set up last; --registry= resets it\n", "--image-pull-secret mirror is that of "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("setup of another Infra printed %s, want %q", stderr, want)
		}
	}
	check(second)
	if stderr := second.Setup("--registry=", "--image-pull-secret="); len(secrets(second)) > 0 || strings.Contains(stderr, "Secret ") { // other tests share control
		t.Errorf("after a reset, pods have pull secrets; setup printed %s", stderr)
	}
	for _, flag := range []string{"--registry=https://registry.example.com", "--image-pull-secret=Mirror"} {
		if _, stderr, code := first.Run("setup", "-f", "FILE", flag); code != 1 || !strings.HasPrefix(stderr, "error: "+strings.Replace(flag, "=", ` "`, 1)+`": `) {
			t.Errorf("setup %s exited with %d: %s", flag, code, stderr)
		}
	}
}

func TestImages(t *testing.T) {
	s := newSite(t)
	plain, _, _ := s.Run("images")
	mirrored, _, _ := s.Run("images", "--registry", "registry.example.com/oooi")
	for line := range strings.Lines(mirrored) {
		image, mirror, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(plain, image+"\n") || !strings.HasPrefix(mirror, "registry.example.com/oooi/") {
			t.Errorf("images lists %q, and with a registry %q", plain, line)
		}
		if out, _, code := s.Run("images", "-o", "imagesetconfiguration"); code != 0 || !strings.Contains(out, "- name: "+image+"\n") {
			t.Errorf("the ImageSetConfiguration does not have %s: %s", image, out)
		}
	}
	for _, args := range [][]string{{"-o", "json"}, {"-o", "imagedigestmirrorset"}, {"--registry", "https://registry.example.com"}} {
		if out, stderr, code := s.Run(append([]string{"images"}, args...)...); code != 1 || out != "" || stderr == "" {
			t.Errorf("images %v exited with %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
}

func TestANewInfraUsesTheImagesOfTheSite(t *testing.T) {
	const image, envoy = "registry.example.com/oooi:7", "registry.example.com/envoy:7"
	first, second := newSite(t), newSite(t)
	if stderr := first.Setup("--image", image, "--envoy-image", envoy); strings.Contains(stderr, "--image") {
		t.Errorf("the first setup printed %s", stderr)
	}
	stderr := second.Setup()
	if !strings.Contains(stderr, "--image "+image+" is that of "+first.Namespace+"/demo, which was set up last; --image= resets it\n") || strings.Contains(stderr, "Deployment oooi-system/oooi-control") || second.Images()["coredns"] != image {
		t.Errorf("setup of another Infra: images %v, stderr %s", second.Images(), stderr)
	}
	if want := "--envoy-image " + envoy + " is that of " + first.Namespace + "/demo, which was set up last; --envoy-image= resets it\n"; !strings.Contains(stderr, want) || second.Images()["envoy"] != envoy {
		t.Errorf("setup of another Infra: images %v, stderr %s, want %q", second.Images(), stderr, want)
	}
	second.Setup("--image=", "--envoy-image=")
	if second.Images()["envoy"] == envoy {
		t.Error("--envoy-image= did not reset the image")
	}
	first.Setup("--image=", "--envoy-image=") // other tests share control
}
