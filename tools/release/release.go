package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// A release is what run builds. Its fields are set in this order.
type release struct {
	options options
	source  *source
	signer  *signer // nil for none

	// version is the tag or, for a snapshot, the version that the go command derives from the commit.
	version string
	// image and envoy are the images that this plugin deploys, by digest.
	image, envoy string
	subjects     []resource
}

// A platform is a platform for which the plugin is built, with its archive.
type platform struct {
	OS, Arch, Binary, Archive, SHA256 string
}

// build builds the image first, because the plugin contains the image's digest.
func (r *release) build(ctx context.Context) error {
	image, err := r.source.buildImage(ctx, r.options.architectures)
	if err != nil {
		return err
	}
	r.version = image.version
	if r.options.version != "" && r.version != r.options.version {
		return fmt.Errorf("the go command derives version %s from the commit, not %s; check whether the commit has another tag", r.version, r.options.version)
	}
	repository := r.options.registry + "/oooi"
	r.image = repository + "@" + image.digest.String()
	if r.envoy, err = resolve(ctx, r.options.envoy); err != nil {
		return err
	}
	if err := r.buildPlugins(ctx); err != nil {
		return err
	}
	charts, err := r.writeManifests()
	if err != nil {
		return err
	}
	bom, err := billOfMaterials(cyclonedx.Component{
		Type: cyclonedx.ComponentTypeContainer, Name: repository, Version: image.digest.String(),
		PackageURL: "pkg:oci/oooi@" + strings.ReplaceAll(image.digest.String(), ":", "%3A") + "?repository_url=" + repository,
	}, image.binaries, r.source.time)
	if err != nil {
		return err
	}
	if err := r.write("oooi-image.cdx.json", bom); err != nil {
		return err
	}
	return r.finish(ctx, image, bom, charts)
}

// finish writes checksums and provenance, signs, writes the image and pushes.
func (r *release) finish(ctx context.Context, image *builtImage, bom []byte, charts []*chart) error {
	if err := r.writeChecksums(); err != nil {
		return err
	}
	type pushed struct {
		name, tag string
		what      interface {
			partial.Describable
			remote.Taggable
		}
	}
	all := []pushed{{"oooi", r.version, image.index}}
	for _, c := range charts {
		all = append(all, pushed{"charts/" + c.name, c.version, c.image})
	}
	for _, p := range all {
		digest, err := p.what.Digest()
		if err != nil {
			return fmt.Errorf("digest of %s: %w", p.name, err)
		}
		r.subjects = append(r.subjects, resource{Name: r.options.registry + "/" + p.name, Digest: map[string]string{digest.Algorithm: digest.Hex}})
	}
	provenance, err := r.writeProvenance()
	if err != nil {
		return err
	}
	for _, p := range all {
		var referrers []v1.Image
		if p.name == "oooi" {
			r, err := referrer(p.what, "application/vnd.cyclonedx+json", bom, nil)
			if err != nil {
				return err
			}
			referrers = append(referrers, r)
		}
		signatures, err := r.signatures(p.what, provenance)
		if err != nil {
			return err
		}
		referrers = append(referrers, signatures...)
		if p.name == "oooi" {
			if err := writeLayout(filepath.Join(r.options.out, "image"), image.index, referrers); err != nil {
				return err
			}
		}
		if !r.options.push {
			continue
		}
		// Tags cannot contain a plus sign; Helm also replaces it.
		if err := pushAll(ctx, r.options.registry+"/"+p.name+":"+strings.ReplaceAll(p.tag, "+", "_"), p.what, referrers); err != nil {
			return err
		}
	}
	return nil
}

// signatures returns the signature of an image or a chart, and the provenance, as artifacts that refer to it.
func (r *release) signatures(what partial.Describable, provenance []byte) ([]v1.Image, error) {
	if r.signer == nil {
		return nil, nil
	}
	digest, err := what.Digest()
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	signature, err := r.signer.signStatement(signatureOf(digest))
	if err != nil {
		return nil, err
	}
	var all []v1.Image
	for _, s := range []struct {
		predicate string
		bundle    []byte
	}{{signatureType, signature}, {provenanceType, provenance}} {
		artifact, err := referrer(what, bundleType, s.bundle, map[string]string{
			"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": s.predicate,
		})
		if err != nil {
			return nil, err
		}
		all = append(all, artifact)
	}
	return all, nil
}

// resolve returns an image by digest, which it reads from the registry unless the name contains it.
func resolve(ctx context.Context, image string) (string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", fmt.Errorf("reading the Envoy image: %w", err)
	}
	if _, ok := ref.(name.Digest); ok {
		return image, nil
	}
	described, err := remote.Head(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return "", fmt.Errorf("reading the digest of Envoy's image: %w; without access to its registry set ENVOY=REPOSITORY@sha256:DIGEST", err)
	}
	repository, _, _ := strings.Cut(strings.TrimSuffix(image, ":"+ref.Identifier()), "@")
	return repository + "@" + described.Digest.String(), nil
}

const releasePackage = "github.com/densityops/oooi/kubectl-oooi/internal/release"

// krewTemplate is the template of the krew manifest.
//
//go:embed oooi.yaml.tmpl
var krewTemplate string

// buildPlugins builds the plugin's archives, their bills of materials and the krew manifest.
func (r *release) buildPlugins(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.source.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("reading the license: %w", err)
	}
	ldflags := fmt.Sprintf("-X %[1]s.Image=%[2]s -X %[1]s.EnvoyImage=%[3]s", releasePackage, r.image, r.envoy)
	var built []platform
	for _, name := range r.options.platforms {
		system, arch, _ := strings.Cut(name, "/")
		base, pack := fmt.Sprintf("kubectl-oooi_%s_%s", system, arch), tarGz
		p := platform{OS: system, Arch: arch, Binary: "kubectl-oooi", Archive: base + ".tar.gz"}
		if p.OS == "windows" {
			p.Binary, p.Archive, pack = "kubectl-oooi.exe", base+".zip", zipFiles
		}
		b, err := r.source.goBuild(ctx, "./kubectl-oooi", p.Binary, p.OS, p.Arch, ldflags)
		if err != nil {
			return err
		}
		archive, err := pack(r.source.time, []file{{p.Binary, b.content, 0o755}, {"LICENSE", license, 0o644}})
		if err != nil {
			return fmt.Errorf("packing %s: %w", p.Archive, err)
		}
		p.SHA256 = sum(archive)
		bom, err := billOfMaterials(cyclonedx.Component{Type: cyclonedx.ComponentTypeFile, Name: p.Archive, Version: r.version, Hashes: hashes(archive)},
			[]binary{b}, r.source.time)
		if err != nil {
			return err
		}
		if err := errors.Join(r.write(p.Archive, archive), r.write(base+".cdx.json", bom)); err != nil {
			return err
		}
		built = append(built, p)
	}
	return r.writeKrewManifest(ctx, built)
}

// writeKrewManifest writes the krew manifest, and validates it with krew.
func (r *release) writeKrewManifest(ctx context.Context, built []platform) error {
	parsed, err := template.New("oooi.yaml").Parse(krewTemplate)
	if err != nil {
		return fmt.Errorf("krew manifest: %w", err)
	}
	var manifest bytes.Buffer
	if err := parsed.Execute(&manifest, map[string]any{"Version": r.version, "URL": r.options.url + "/" + r.version, "Platforms": built}); err != nil {
		return fmt.Errorf("krew manifest: %w", err)
	}
	if err := r.write("oooi.yaml", manifest.Bytes()); err != nil {
		return err
	}
	//nolint:gosec // no shell
	cmd := exec.CommandContext(ctx, "go", "tool", "validate-krew-manifest", "-skip-install", "-manifest", filepath.Join(r.options.out, "oooi.yaml"))
	cmd.Dir = filepath.Join(r.source.root, "tools", "release")
	_, err = output(cmd)
	return err
}

// writeManifests writes the charts, the CustomResourceDefinitions and the kustomizations.
func (r *release) writeManifests() ([]*chart, error) {
	var charts []*chart
	for _, name := range []string{"oooi", "virtual-ingress"} {
		c, err := r.packageChart(name)
		if err != nil {
			return nil, err
		}
		if err := r.write(fmt.Sprintf("%s-%s.tgz", c.name, c.version), c.archive); err != nil {
			return nil, err
		}
		charts = append(charts, c)
	}
	var crds bytes.Buffer
	files, err := r.stampedFiles("manifests", "oooi-manifests")
	if err != nil {
		return nil, err
	}
	var kept []file
	for _, f := range files {
		folder, _, _ := strings.Cut(strings.TrimPrefix(f.name, "oooi-manifests/"), "/")
		// .json: the dashboard, which the kustomization of monitoring contains
		if !slices.Contains([]string{".yaml", ".json"}, path.Ext(f.name)) ||
			!slices.Contains([]string{"base", "crds", "doctor", "egress", "ingress", "monitoring", "test"}, folder) {
			continue
		}
		kept = append(kept, f)
		if folder == "crds" && path.Base(f.name) != "kustomization.yaml" {
			crds.WriteString("---\n" + strings.TrimPrefix(string(f.content), "---\n"))
		}
	}
	archive, err := tarGz(r.source.time, kept)
	if err != nil {
		return nil, fmt.Errorf("packing the manifests: %w", err)
	}
	return charts, errors.Join(r.write("oooi-manifests.tar.gz", archive), r.write("oooi-crds.yaml", crds.Bytes()))
}

// writeChecksums writes checksums.txt, for sha256sum, and its signature.
func (r *release) writeChecksums() error {
	var text strings.Builder
	for _, s := range r.subjects {
		fmt.Fprintf(&text, "%s  %s\n", s.Digest["sha256"], s.Name)
	}
	checksums := []byte(text.String())
	if err := os.WriteFile(filepath.Join(r.options.out, "checksums.txt"), checksums, 0o644); err != nil { //nolint:gosec // not secret
		return fmt.Errorf("writing the checksums: %w", err)
	}
	if r.signer == nil {
		return nil
	}
	signature, err := r.signer.signFile(checksums)
	if err != nil {
		return err
	}
	for fileName, content := range map[string][]byte{"checksums.txt.sigstore.json": signature, "oooi.pub": r.signer.public} {
		if err := os.WriteFile(filepath.Join(r.options.out, fileName), content, 0o644); err != nil { //nolint:gosec // not secret
			return fmt.Errorf("writing the signature: %w", err)
		}
	}
	return nil
}

// writeProvenance writes the provenance of all subjects, and returns it as a signed bundle if there is a key.
func (r *release) writeProvenance() ([]byte, error) {
	statement := r.provenance(r.subjects)
	fileName := "provenance.intoto.json"
	var content []byte
	var err error
	if r.signer == nil {
		content, err = json.Marshal(statement)
	} else {
		fileName = "provenance.sigstore.json"
		content, err = r.signer.signStatement(statement)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(r.options.out, fileName), content, 0o644) //nolint:gosec // not secret
	}
	if err != nil {
		return nil, fmt.Errorf("writing the provenance: %w", err)
	}
	return content, nil
}

// write writes a file that the release consists of.
func (r *release) write(fileName string, content []byte) error {
	r.subjects = append(r.subjects, resource{Name: fileName, Digest: map[string]string{"sha256": sum(content)}})
	if err := os.WriteFile(filepath.Join(r.options.out, fileName), content, 0o644); err != nil { //nolint:gosec // not secret
		return fmt.Errorf("writing %s: %w", fileName, err)
	}
	return nil
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}
