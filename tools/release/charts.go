package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

// unreleasedImage is the image in the repository's charts and manifests. Its tag does not exist: a release replaces it by
// the image's digest.
const unreleasedImage = "ghcr.io/densityops/oooi:unreleased"

// A chart is a packaged Helm chart.
type chart struct {
	name, version string
	archive       []byte
	image         v1.Image // the chart as an OCI artifact
}

// packageChart packages the chart in manifests/charts/NAME, with the version and the image of the release.
func (r *release) packageChart(name string) (*chart, error) {
	files, err := r.stampedFiles(path.Join("manifests", "charts", name), name)
	if err != nil {
		return nil, err
	}
	c := &chart{name: name, version: strings.TrimPrefix(r.version, "v")}
	var metadata map[string]any
	for i, f := range files {
		if f.name != name+"/Chart.yaml" {
			continue
		}
		text := regexp.MustCompile(`(?m)^version: .*$`).ReplaceAll(f.content, []byte("version: "+c.version))
		files[i].content = regexp.MustCompile(`(?m)^appVersion: .*$`).ReplaceAll(text, []byte("appVersion: "+r.version))
		if err := yaml.Unmarshal(files[i].content, &metadata); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f.name, err)
		}
	}
	if metadata["version"] != c.version || metadata["appVersion"] != r.version {
		return nil, fmt.Errorf("chart %s: Chart.yaml lacks version or appVersion", name)
	}
	if c.archive, err = tarGz(r.source.time, files); err != nil {
		return nil, fmt.Errorf("packaging chart %s: %w", name, err)
	}
	description, _ := metadata["description"].(string)
	c.image, err = chartImage(metadata, c.archive, r.source.annotationsOf(name, description, c.version))
	return c, err
}

// chartImage returns a chart as the OCI artifact that 'helm push' would push.
func chartImage(metadata map[string]any, archive []byte, annotations map[string]string) (v1.Image, error) {
	config, err := json.Marshal(metadata)
	if err != nil {
		return nil, fmt.Errorf("encoding the chart's metadata: %w", err)
	}
	base, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		static.NewLayer(archive, "application/vnd.cncf.helm.chart.content.v1.tar+gzip"))
	if err != nil {
		return nil, fmt.Errorf("building the chart's artifact: %w", err)
	}
	image, err := partial.CompressedToImage(&artifact{Image: base, config: config, annotations: annotations})
	if err != nil {
		return nil, fmt.Errorf("building the chart's artifact: %w", err)
	}
	return image, nil
}

// An artifact is an image whose configuration does not describe a container.
type artifact struct {
	v1.Image
	config      []byte
	annotations map[string]string
}

// RawConfigFile returns the chart's metadata.
func (a *artifact) RawConfigFile() ([]byte, error) { return a.config, nil }

// RawManifest returns the manifest, which refers to the chart's metadata.
func (a *artifact) RawManifest() ([]byte, error) {
	m, err := a.Manifest()
	if err != nil {
		return nil, err
	}
	m = m.DeepCopy()
	m.Annotations = a.annotations
	m.Config.MediaType, m.Config.Size = "application/vnd.cncf.helm.config.v1+json", int64(len(a.config))
	if m.Config.Digest, _, err = v1.SHA256(bytes.NewReader(a.config)); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// LayerByDigest returns the archive of the chart.
func (a *artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	return a.Image.LayerByDigest(digest)
}

// stampedFiles returns the files of a directory, with paths below the folder to of an archive, and with the release's image. It
// returns an error if no file contains the image.
func (r *release) stampedFiles(folder, to string) ([]file, error) {
	var files []file
	stamped := false
	root := os.DirFS(filepath.Join(r.source.root, filepath.FromSlash(folder)))
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		stamped = stamped || bytes.Contains(content, []byte(unreleasedImage))
		content = bytes.ReplaceAll(content, []byte(unreleasedImage), []byte(r.image))
		files = append(files, file{path.Join(to, name), content, 0o644})
		return err
	})
	if err == nil && !stamped {
		err = errors.New("no file contains the image " + unreleasedImage)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", folder, err)
	}
	return files, nil
}
