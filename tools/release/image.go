package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// programs are the main packages of the image by name. A pod's command chooses one.
var programs = []struct{ name, pkg string }{{"coredhcp", "./coredhcpbuild"}, {"coredns", "./corednsbuild"}, {"xdsd", "./xdsd"}}

// certificates returns the certificates of public authorities as PEM: Mozilla's, in the version that go.mod pins.
func certificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a buffer does not fail
	}
	return out.Bytes()
}

// imageFor returns the image of an architecture: from scratch, because the static programs need only certificates.
// Each program has a layer, so that nodes download them at the same time.
func imageFor(arch string, binaries []binary, labels map[string]string, when time.Time) (v1.Image, error) {
	files := []file{{"etc/ssl/certs/ca-certificates.crt", certificates(), 0o644}}
	for _, b := range binaries {
		if b.arch == arch {
			files = append(files, file{b.name, b.content, 0o755})
		}
	}
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	for _, f := range files {
		compressed, err := tarGz(when, []file{f})
		if err != nil {
			return nil, fmt.Errorf("writing a layer: %w", err)
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(compressed)), nil },
			tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, fmt.Errorf("writing a layer: %w", err)
		}
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: when}, CreatedBy: "COPY /" + f.name}})
		if err != nil {
			return nil, fmt.Errorf("adding a layer: %w", err)
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: when}
	config.Config = v1.Config{User: "65532:65532", Labels: labels}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configuring the image: %w", err)
	}
	return image, nil
}

// indexOf returns one image of several architectures.
func indexOf(images map[string]v1.Image, architectures []string, annotations map[string]string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: containerImage{images[arch]},
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	annotated, ok := mutate.Annotations(index, annotations).(v1.ImageIndex)
	if !ok {
		return nil, errors.New("annotating the image: the object is not an index")
	}
	return annotated, nil
}

// A containerImage has no artifact type in an index. skopeo 1.9 drops that field of OCI 1.1 from an index that it copies,
// so that its digest changes.
type containerImage struct{ v1.Image }

// ArtifactType returns "".
func (containerImage) ArtifactType() (string, error) { return "", nil }

// annotationsOf returns the OCI annotations of artifacts that are built from the source; images have them as labels, too.
func (s *source) annotationsOf(title, description, version string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       title,
		"org.opencontainers.image.description": description,
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.revision":    s.commit,
		"org.opencontainers.image.created":     s.time.Format(time.RFC3339),
		"org.opencontainers.image.source":      homepage,
		"org.opencontainers.image.url":         homepage,
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

const (
	homepage         = "https://github.com/densityops/oooi"
	imageDescription = "Network services for OpenShift Hosted Control Planes on isolated VLANs: coredhcp, coredns and xdsd"
)

// referrer returns an artifact with one file that refers to subject, such as a signature.
func referrer(subject partial.Describable, artifactType string, content []byte, annotations map[string]string) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.MediaType(artifactType))
	image, err := mutate.AppendLayers(image, static.NewLayer(content, types.MediaType(artifactType)))
	if err != nil {
		return nil, fmt.Errorf("building an artifact: %w", err)
	}
	described, err := partial.Descriptor(subject)
	if err != nil {
		return nil, fmt.Errorf("building an artifact: %w", err)
	}
	// The subject comes last: other mutations drop it.
	referring, ok := mutate.Subject(mutate.Annotations(image, annotations),
		v1.Descriptor{MediaType: described.MediaType, Digest: described.Digest, Size: described.Size}).(v1.Image)
	if !ok {
		return nil, errors.New("building an artifact: not an image")
	}
	return referring, nil
}

// writeLayout writes the image, with the name oooi, and its referrers to an OCI layout.
func writeLayout(dir string, index v1.ImageIndex, referrers []v1.Image) error {
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": "oooi"}))
	}
	for _, r := range referrers {
		if err == nil {
			err = path.AppendImage(r)
		}
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", dir, err)
	}
	return nil
}

// pushAll pushes an image or a chart with a tag, and its referrers. The tag comes last, so that an interrupted push leaves no
// tag without a signature. It uses the credentials of 'docker login' or 'crane auth login'.
func pushAll(ctx context.Context, reference string, what remote.Taggable, referrers []v1.Image) error {
	tag, err := name.NewTag(reference)
	if err != nil {
		return fmt.Errorf("pushing: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	switch w := what.(type) {
	case v1.ImageIndex:
		var digest v1.Hash
		if digest, err = w.Digest(); err == nil {
			err = remote.WriteIndex(tag.Digest(digest.String()), w, options...)
		}
	case v1.Image:
		var digest v1.Hash
		if digest, err = w.Digest(); err == nil {
			err = remote.Write(tag.Digest(digest.String()), w, options...)
		}
	}
	if err != nil {
		return fmt.Errorf("pushing %s: %w", reference, err)
	}
	for _, r := range referrers {
		if err := pushReferrer(tag, r, options); err != nil {
			return fmt.Errorf("pushing referrers of %s: %w", reference, err)
		}
	}
	if err := remote.Tag(tag, what, options...); err != nil {
		return fmt.Errorf("pushing the tag %s: %w", reference, err)
	}
	return nil
}

// pushReferrer pushes an artifact that refers to an image to the repository of a tag.
func pushReferrer(tag name.Tag, r v1.Image, options []remote.Option) error {
	digest, err := r.Digest()
	if err != nil {
		return err
	}
	ref := tag.Digest(digest.String())
	if err := remote.Write(ref, r, options...); err != nil {
		return err
	}
	// Write does nothing if an interrupted push has left the manifest. Put also adds it to the list of referrers in this case.
	return remote.Put(ref, r, options...)
}

// runImage builds the image of the working tree, without a release.
func runImage(ctx context.Context, o options) error {
	s, err := readSource(ctx, o.root)
	if err != nil {
		return err
	}
	b, err := s.buildImage(ctx, o.architectures)
	if err != nil {
		return err
	}
	dir := filepath.Join(o.out, "image")
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("replacing the image: %w", err)
	}
	if err := writeLayout(dir, b.index, nil); err != nil {
		return err
	}
	if o.push {
		err = pushAll(ctx, o.image, b.index, nil)
	}
	fmt.Println(o.image + "@" + b.digest.String())
	return err
}

// A builtImage is an image with its binaries and source.
type builtImage struct {
	index    v1.ImageIndex
	digest   v1.Hash
	binaries []binary
	// version is the version that the go command has recorded in the binaries: the tag, or a version derived from the commit.
	version string
}

// buildImage builds the programs and the image.
func (s *source) buildImage(ctx context.Context, architectures []string) (*builtImage, error) {
	b := &builtImage{}
	for _, arch := range architectures {
		for _, p := range programs {
			ldflags := ""
			if p.name == "coredns" {
				ldflags = "-X github.com/coredns/coredns/coremain.GitCommit=oooi-" + b.version
			}
			built, err := s.goBuild(ctx, p.pkg, p.name, "linux", arch, ldflags)
			if err != nil {
				return nil, err
			}
			b.binaries, b.version = append(b.binaries, built), built.info.Main.Version
		}
	}
	images := map[string]v1.Image{}
	annotations := s.annotationsOf("oooi", imageDescription, b.version)
	for _, arch := range architectures {
		var err error
		if images[arch], err = imageFor(arch, b.binaries, annotations, s.time); err != nil {
			return nil, err
		}
	}
	var err error
	if b.index, err = indexOf(images, architectures, annotations); err != nil {
		return nil, err
	}
	if b.digest, err = b.index.Digest(); err != nil {
		return nil, fmt.Errorf("building the image: %w", err)
	}
	return b, nil
}
