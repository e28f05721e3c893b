package main

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// TestReferrers pushes an image with an artifact to registries with and without the referrers API. Both must list it.
func TestReferrers(t *testing.T) {
	for _, supported := range []bool{true, false} {
		server := httptest.NewServer(registry.New(registry.WithReferrersSupport(supported), registry.Logger(log.New(io.Discard, "", 0))))
		t.Cleanup(server.Close)
		index, err := random.Index(100, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		r, err := referrer(index, bundleType, []byte("{}"), map[string]string{"a": "b"})
		if err != nil {
			t.Fatal(err)
		}
		repository := strings.TrimPrefix(server.URL, "http://") + "/oooi"
		if err := pushAll(t.Context(), repository+":v1", index, []v1.Image{r}); err != nil {
			t.Fatal(err)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		ref, err := name.NewDigest(repository + "@" + digest.String())
		if err != nil {
			t.Fatal(err)
		}
		listed, err := remote.Referrers(ref)
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := listed.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != bundleType || manifest.Manifests[0].Annotations["a"] != "b" {
			t.Errorf("with the referrers API %t: %+v", supported, manifest.Manifests)
		}
	}
}
