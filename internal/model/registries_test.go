package model

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/internal/objects"
)

func TestRegistries(t *testing.T) {
	mirror := func(source string, mirrors ...string) objects.ImageContentSource {
		return objects.ImageContentSource{Source: source, Mirrors: mirrors}
	}
	for _, tc := range []struct {
		image   string
		sources []objects.ImageContentSource
		want    string
	}{
		{"quay.io/openshift-release-dev/ocp-release:4.20.0-x86_64", nil, "[quay.io]"},
		{"Registry.example.com:5000/release@sha256:00", nil, "[registry.example.com]"},
		{"192.0.2.9:5000/release:1", nil, "[]"},
		{"[2001:db8::1]:5000/release:1", nil, "[]"},
		{"localhost/release:1", nil, "[]"},
		{"release:1", nil, "[]"},
		{"", nil, "[]"},
		{"quay.io/a/b:1", []objects.ImageContentSource{mirror("quay.io/a/b", "two.example.com/b", "one.example.com:5000/b", "two.example.com/c")}, "[one.example.com two.example.com]"},
		{"quay.io/a/b:1", []objects.ImageContentSource{mirror("quay.io/a", "one.example.com/a")}, "[one.example.com]"},
		{"quay.io/a/bc:1", []objects.ImageContentSource{mirror("quay.io/a/b", "one.example.com/b"), mirror("quay.io/x", "two.example.com/x"), mirror("quay.io/a")}, "[quay.io]"},
	} {
		got := registries(&objects.HostedClusterSpec{Release: objects.Release{Image: tc.image}, ImageContentSources: tc.sources})
		if text := fmt.Sprint(got); text != tc.want {
			t.Errorf("%s %v: got %s, want %s", tc.image, tc.sources, text, tc.want)
		}
	}
}

// TestRegistriesBehindAProxy decodes a HostedCluster whose nodes connect through an HTTP proxy. The URL is not kept.
func TestRegistriesBehindAProxy(t *testing.T) {
	for proxy, want := range map[string]string{"http://user:password@192.0.2.9:3128": "[]", "": "[quay.io]"} {
		hc, ok := objects.Decode[objects.HostedCluster](&unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"release": map[string]any{"image": "quay.io/a/b:1"}, "configuration": map[string]any{"proxy": map[string]any{"httpsProxy": proxy}}},
		}}).(*objects.HostedCluster)
		if !ok {
			t.Fatal("the object cannot be decoded")
		}
		if got := fmt.Sprint(registries(&hc.Spec)); got != want {
			t.Errorf("with httpsProxy %q: got %s, want %s", proxy, got, want)
		}
		data, err := json.Marshal(hc)
		if err != nil {
			t.Fatal(err)
		}
		again := &objects.HostedCluster{}
		if err := json.Unmarshal(data, again); err != nil || strings.Contains(string(data), "password") || again.Spec.Configuration.Proxy.HTTPSProxy != hc.Spec.Configuration.Proxy.HTTPSProxy {
			t.Errorf("encoded as %s, %v", data, err)
		}
	}
}
