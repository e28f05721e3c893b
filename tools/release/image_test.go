package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// TestIndex checks that an index has no fields that tools for OCI 1.0 would drop from a copy.
func TestIndex(t *testing.T) {
	image, err := imageFor("amd64", nil, nil, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	index, err := indexOf(map[string]v1.Image{"amd64": image}, []string{"amd64"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := index.RawManifest(); err != nil || strings.Contains(string(text), "artifactType") {
		t.Errorf("the index is %s (%v)", text, err)
	}
}

// TestInterruptedPush interrupts a push before each of its changes. The registry must not have the tag then, and another
// push must complete it, with one signature.
func TestInterruptedPush(t *testing.T) {
	image, err := random.Image(100, 1)
	if err != nil {
		t.Fatal(err)
	}
	signature, err := referrer(image, bundleType, []byte("{}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	interrupted := true
	for changes := int64(0); interrupted; changes++ {
		var left atomic.Int64
		left.Store(changes)
		handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead && left.Add(-1) < 0 {
				w.WriteHeader(http.StatusForbidden)
				return
			}
			handler.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/oooi:v1")
		if err != nil {
			t.Fatal(err)
		}
		interrupted = pushAll(t.Context(), tag.String(), image, []v1.Image{signature}) != nil
		if _, err := remote.Head(tag); (err != nil) != interrupted {
			t.Errorf("interrupted %t after %d changes, reading the tag: %v", interrupted, changes, err)
		}
		left.Store(1000)
		if err := pushAll(t.Context(), tag.String(), image, []v1.Image{signature}); err != nil {
			t.Fatal(err)
		}
		if found, err := remote.Head(tag); err != nil || found.Digest != digest {
			t.Errorf("pushed again after %d changes, the tag is %v (%v)", changes, found, err)
		}
		listed, err := remote.Referrers(tag.Digest(digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		if manifest, err := listed.IndexManifest(); err != nil || len(manifest.Manifests) != 1 {
			t.Errorf("pushed again after %d changes, the image has signatures %+v (%v)", changes, manifest, err)
		}
		if changes > 100 {
			t.Fatal("the push does not complete")
		}
	}
}
