//go:build release

// Package release_test builds a release and installs it from a registry and a file server on the loopback interface.
package release_test

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
	"github.com/densityops/oooi/test/release"
)

const version = "v0.9.0"

// A site has a release in a directory, and what it was published to.
type site struct {
	*testing.T
	*release.Publisher

	dist   string
	public *ecdsa.PublicKey
}

// TestRelease builds a release, with a throwaway key, twice, and installs it with krew and Helm.
func TestRelease(t *testing.T) {
	s := &site{T: t, Publisher: release.NewPublisher(t)}
	s.dist = filepath.Join(s.Folder, version)
	empty := filepath.Join(t.TempDir(), "empty.tar")
	if err := os.WriteFile(empty, make([]byte, 1024), 0o600); err != nil { // an empty tar archive
		t.Fatal(err)
	}
	s.crane("append", "-f", empty, "-t", s.EnvoyTag())
	envoy := s.Registry + "/envoyproxy/envoy@" + strings.TrimSpace(s.crane("digest", s.EnvoyTag()))

	key := s.newKey()
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "a", "longer", "path")
	release.Checkout(t, one)
	s.run("", nil, "git", "-C", one, "tag", version)
	s.run("", nil, "git", "clone", "--quiet", one, two)
	again := filepath.Join(t.TempDir(), "again")
	s.Build(t, one, s.dist, "-version", version, "-key", key, "-push")
	s.Build(t, two, again, "-version", version, "-key", key)

	run := func(name string, test func(*site)) {
		t.Run(name, func(t *testing.T) {
			sub := *s
			sub.T = t
			test(&sub)
		})
	}
	run("reproducible", func(s *site) { sameFiles(s.T, s.dist, again) })
	run("checksums", (*site).checksums)
	image := ""
	run("plugin", func(s *site) { image = s.plugin(one, envoy) })
	run("image", func(s *site) { s.image(image) })
	run("referrers", func(s *site) { s.referrers(image) })
	run("cosign", func(s *site) { s.cosign(image) })
	run("charts", func(s *site) { s.charts(image) })
	run("manifests", func(s *site) { s.manifests(image) })
	run("changed archive", (*site).changedArchive)
	run("refusals", func(s *site) { s.refusals(one, key) })
}

// run runs a program in a directory, with additional environment variables, and returns its output.
func (s *site) run(dir string, env []string, name string, args ...string) string {
	s.Helper()
	return release.Run(s.T, dir, env, name, args...)
}

func (s *site) try(dir string, env []string, name string, args ...string) (string, error) {
	s.Helper()
	return release.Try(s.T, dir, env, name, args...)
}

func (s *site) crane(args ...string) string {
	s.Helper()
	return s.Crane(s.T, args...)
}

// newKey writes a private key and returns its path.
func (s *site) newKey() string {
	s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	lab.Must(s, err)
	s.public = &key.PublicKey
	der, err := x509.MarshalPKCS8PrivateKey(key)
	lab.Must(s, err)
	path := filepath.Join(s.TempDir(), "oooi.key")
	lab.Must(s, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return path
}

// sameFiles compares all files of two directories.
func sameFiles(t *testing.T, one, two string) {
	a, b := filesOf(t, one), filesOf(t, two)
	if names, others := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)); !slices.Equal(names, others) {
		t.Errorf("one build has files %q, the other %q", names, others)
	}
	for name, content := range a {
		if !bytes.Equal(content, b[name]) {
			t.Errorf("%s differs between two builds", name)
		}
		if !strings.HasPrefix(name, "image/blobs") && (bytes.Contains(content, []byte("oooi:latest")) || bytes.Contains(content, []byte(":unreleased"))) {
			t.Errorf("%s has an image that does not exist", name)
		}
	}
}

func filesOf(t *testing.T, root string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err == nil {
			all[name], err = os.ReadFile(path)
		}
		return err
	})
	lab.Must(t, err)
	return all
}

// A sigstoreBundle has a signature of a file or of a statement.
type sigstoreBundle struct {
	Message struct {
		Digest struct {
			Digest []byte `json:"digest"`
		} `json:"messageDigest"`
		Signature []byte `json:"signature"`
	} `json:"messageSignature"`
	Envelope struct {
		PayloadType string `json:"payloadType"`
		Payload     []byte `json:"payload"`
		Signatures  []struct {
			Sig []byte `json:"sig"`
		} `json:"signatures"`
	} `json:"dsseEnvelope"`
}

// A statement is an in-toto statement.
type statement struct {
	PredicateType string `json:"predicateType"`
	Subject       []struct {
		Name   string            `json:"name"`
		Digest map[string]string `json:"digest"`
	} `json:"subject"`
}

// subjects returns the digests of the subjects by name.
func (st *statement) subjects() map[string]string {
	all := map[string]string{}
	for _, subject := range st.Subject {
		all[subject.Name] = subject.Digest["sha256"]
	}
	return all
}

// verified returns the statement of a bundle whose signature is valid.
func (s *site) verified(text []byte) *statement {
	s.Helper()
	var b sigstoreBundle
	lab.Must(s, json.Unmarshal(text, &b))
	e := b.Envelope
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload))
	if len(e.Signatures) != 1 || !ecdsa.VerifyASN1(s.public, sum[:], e.Signatures[0].Sig) {
		s.Fatalf("the signature is invalid: %s", text)
	}
	st := &statement{}
	lab.Must(s, json.Unmarshal(e.Payload, st))
	return st
}

// checksums verifies checksums.txt and its signature, and that both it and the provenance have all files.
func (s *site) checksums() {
	files := filesOf(s.T, s.dist)
	var b sigstoreBundle
	lab.Must(s, json.Unmarshal(files["checksums.txt.sigstore.json"], &b))
	sum := sha256.Sum256(files["checksums.txt"])
	if !bytes.Equal(b.Message.Digest.Digest, sum[:]) || !ecdsa.VerifyASN1(s.public, sum[:], b.Message.Signature) {
		s.Error("the signature of checksums.txt is invalid")
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(files["checksums.txt"])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	provenance := s.verified(files["provenance.sigstore.json"])
	if provenance.PredicateType != "https://slsa.dev/provenance/v1" {
		s.Errorf("predicate type %s", provenance.PredicateType)
	}
	built := provenance.subjects()
	for name, content := range files {
		if strings.HasPrefix(name, "image/") || slices.Contains([]string{"checksums.txt", "checksums.txt.sigstore.json", "oooi.pub", "provenance.sigstore.json"}, name) {
			continue
		}
		sum := sha256.Sum256(content)
		if want := hex.EncodeToString(sum[:]); listed[name] != want || built[name] != want {
			s.Errorf("%s: checksums.txt has %q, the provenance %q, want %s", name, listed[name], built[name], want)
		}
	}
}

// plugin installs the plugin with krew from an index, and returns the image that it deploys.
func (s *site) plugin(checkout, envoy string) string {
	krew := s.NewKrew(s.T)
	krew.Publish(s.T, s.dist)
	krew.Run(s.T, "install", "test/oooi")
	if licenses, _ := filepath.Glob(filepath.Join(krew.Root(), "store", "oooi", version, "LICENSE")); len(licenses) != 1 {
		s.Error("krew installed no LICENSE")
	}
	plugin := krew.Plugin()
	var printed struct {
		Client struct{ Version, Image, EnvoyImage string }
	}
	lab.Must(s, json.Unmarshal([]byte(s.run("", nil, plugin, "version", "--client", "-o", "json")), &printed))
	c := printed.Client
	if c.Version != version || c.EnvoyImage != envoy || !strings.HasPrefix(c.Image, s.Registry+"/oooi@sha256:") {
		s.Errorf("version %q, image %q, image of Envoy %q", c.Version, c.Image, c.EnvoyImage)
	}
	example := filepath.Join(checkout, "manifests", "examples", "demo")
	deployed := s.run("", nil, plugin, "setup", "-f", filepath.Join(example, "infra.yaml"), "-f", filepath.Join(example, "cluster.yaml"), "--dry-run=client")
	images := map[string]bool{}
	for line := range strings.Lines(deployed) {
		if _, image, ok := strings.Cut(line, " image: "); ok {
			images[strings.TrimSpace(image)] = true
		}
	}
	if want := map[string]bool{c.Image: true, envoy: true}; !maps.Equal(images, want) {
		s.Errorf("setup deploys %v, want %v", images, want)
	}
	return c.Image
}

// image checks the image in the registry, and in the layout that is published with the release.
func (s *site) image(image string) {
	if digest := strings.TrimSpace(s.crane("digest", s.Registry+"/oooi:"+version)); s.Registry+"/oooi@"+digest != image {
		s.Errorf("the tag has digest %s, the plugin image %s", digest, image)
	}
	s.crane("validate", "--remote", image)
	var config struct {
		Created time.Time `json:"created"`
		Config  struct {
			User   string            `json:"User"`
			Labels map[string]string `json:"Labels"`
		} `json:"config"`
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if !lab.Long() {
		machines = map[string]elf.Machine{runtime.GOARCH: machines[runtime.GOARCH]}
	}
	for arch, machine := range machines {
		platform := "linux/" + arch
		lab.Must(s, json.Unmarshal([]byte(s.crane("config", "--platform", platform, image)), &config))
		if l := config.Config.Labels; config.Config.User != "65532:65532" || l["org.opencontainers.image.version"] != version || len(l["org.opencontainers.image.revision"]) != 40 {
			s.Errorf("%s: configuration %+v", arch, config)
		}
		exported := filepath.Join(s.TempDir(), "image.tar")
		s.crane("export", "--platform", platform, image, exported)
		files := map[string]int64{}
		for _, f := range filesIn(s.T, exported) {
			files[f.header.Name] = f.header.Mode
			if !f.header.ModTime.Equal(config.Created) {
				s.Errorf("%s: %s has time %s, the image %s", arch, f.header.Name, f.header.ModTime, config.Created)
			}
			if program, err := elf.NewFile(bytes.NewReader(f.content)); err == nil && program.Machine != machine {
				s.Errorf("%s: %s has machine type %s", arch, f.header.Name, program.Machine)
			}
		}
		if want := map[string]int64{"coredhcp": 0o755, "coredns": 0o755, "xdsd": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644}; !maps.Equal(files, want) {
			s.Errorf("%s: the image has files %v, want %v", arch, files, want)
		}
	}
}

type archived struct {
	header  *tar.Header
	content []byte
}

// filesIn returns the files in a tar archive.
func filesIn(t *testing.T, path string) []archived {
	t.Helper()
	archive, err := os.Open(path)
	lab.Must(t, err)
	defer func() { _ = archive.Close() }()
	var all []archived
	for list := tar.NewReader(archive); ; {
		header, err := list.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		lab.Must(t, err)
		content, err := io.ReadAll(list)
		lab.Must(t, err)
		all = append(all, archived{header, content})
	}
}

// referrers checks the artifacts that refer to the image.
func (s *site) referrers(image string) {
	repository, digest, _ := strings.Cut(image, "@")
	var index struct {
		Manifests []struct{ Digest, ArtifactType string }
	}
	lab.Must(s, json.Unmarshal([]byte(s.crane("manifest", repository+":"+strings.ReplaceAll(digest, ":", "-"))), &index))
	found := map[string]bool{}
	for _, m := range index.Manifests {
		content := s.artifact(repository, m.Digest)
		if m.ArtifactType == "application/vnd.cyclonedx+json" {
			found["bill of materials"] = bytes.Contains(content, []byte(`"pkg:golang/github.com/coredns/coredns@`))
			continue
		}
		st := s.verified(content)
		for _, subject := range st.subjects() {
			found[st.PredicateType] = found[st.PredicateType] || "sha256:"+subject == digest
		}
	}
	if want := map[string]bool{"bill of materials": true, "https://sigstore.dev/cosign/sign/v1": true, "https://slsa.dev/provenance/v1": true}; !maps.Equal(found, want) {
		s.Errorf("artifacts %v, want %v", found, want)
	}
}

// artifact returns the only file of an artifact.
func (s *site) artifact(repository, digest string) []byte {
	s.Helper()
	var manifest struct{ Layers []struct{ Digest string } }
	if err := json.Unmarshal([]byte(s.crane("manifest", repository+"@"+digest)), &manifest); err != nil || len(manifest.Layers) != 1 {
		s.Fatalf("artifact %s: %v, %d layers", digest, err, len(manifest.Layers))
	}
	return []byte(s.crane("blob", repository+"@"+manifest.Layers[0].Digest))
}

// cosign verifies the signatures with cosign, if it is installed: it takes minutes to compile.
func (s *site) cosign(image string) {
	cosign, err := exec.LookPath("cosign")
	if err != nil {
		s.Skip("cosign is not installed")
	}
	flags := []string{"--key", filepath.Join(s.dist, "oooi.pub"), "--insecure-ignore-tlog"}
	for _, args := range [][]string{
		{"verify-blob", "--bundle", filepath.Join(s.dist, "checksums.txt.sigstore.json"), filepath.Join(s.dist, "checksums.txt")},
		{"verify", image},
		{"verify-attestation", "--type", "slsaprovenance1", image},
	} {
		if _, err := s.try("", nil, cosign, slices.Concat(args[:1], flags, args[1:])...); err != nil {
			s.Error(err)
		}
	}
}

// charts pulls the charts with Helm, and renders them.
func (s *site) charts(image string) {
	helm, err := lab.BuildHelm(s.Context(), s.Logf)
	lab.Must(s, err)
	home := s.TempDir()
	env := []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home}
	number := strings.TrimPrefix(version, "v")
	for _, name := range []string{"oooi", "virtual-ingress"} {
		dir := s.TempDir()
		s.run(dir, env, helm, "pull", "oci://"+s.Registry+"/charts/"+name, "--version", number, "--plain-http")
		archive := filepath.Join(dir, name+"-"+number+".tgz")
		pulled, err1 := os.ReadFile(archive)
		built, err2 := os.ReadFile(filepath.Join(s.dist, filepath.Base(archive)))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(pulled, built) {
			s.Errorf("chart %s: the registry has another archive (%v)", name, err)
		}
		if chart := s.run("", env, helm, "show", "chart", archive); !strings.Contains(chart, "\nversion: "+number+"\n") || !strings.Contains(chart, "appVersion: "+version+"\n") {
			s.Errorf("chart %s: %s", name, chart)
		}
		if rendered := s.run("", env, helm, "template", name, archive, "--kube-version", "1.30.0"); !strings.Contains(rendered, image) || strings.Contains(rendered, "unreleased") {
			s.Errorf("chart %s does not deploy %s", name, image)
		}
	}
}

// manifests builds the kustomizations with kubectl, and checks their image.
func (s *site) manifests(image string) {
	kubectl, err := lab.BuildKubectl(s.Context(), s.Logf)
	lab.Must(s, err)
	folder := s.TempDir()
	s.run(folder, nil, "tar", "-xzf", filepath.Join(s.dist, "oooi-manifests.tar.gz"))
	for _, name := range []string{"base", "ingress"} {
		if text := s.run(folder, nil, kubectl, "kustomize", filepath.Join("oooi-manifests", name)); !strings.Contains(text, " image: "+image+"\n") || strings.Contains(text, "unreleased") {
			s.Errorf("%s does not deploy %s", name, image)
		}
	}
	crds, err := os.ReadFile(filepath.Join(s.dist, "oooi-crds.yaml"))
	if got := strings.Count(string(crds), "\nkind: CustomResourceDefinition\n"); err != nil || got != 3 {
		s.Errorf("oooi-crds.yaml has %d CustomResourceDefinitions (%v)", got, err)
	}
}

// changedArchive checks that krew refuses an archive that is not the one of the manifest.
func (s *site) changedArchive() {
	archives, err := filepath.Glob(filepath.Join(s.dist, "kubectl-oooi_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"))
	if err != nil || len(archives) != 1 {
		s.Fatal(archives, err)
	}
	file, err := os.OpenFile(archives[0], os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString("x")
		err = errors.Join(err, file.Close())
	}
	lab.Must(s, err)
	_, err = s.try("", []string{"KREW_ROOT=" + s.TempDir(), "KREW_NO_UPGRADE_CHECK=1"}, s.Tool("krew"), "install", "--manifest", filepath.Join(s.dist, "oooi.yaml"))
	if err == nil || !strings.Contains(err.Error(), "checksum") {
		s.Errorf("krew installs an archive with another checksum: %v", err)
	}
}

// refusals checks that no release is built without a key, for another tag, in a worktree, or with changes in the working tree.
func (s *site) refusals(checkout, key string) {
	refused := func(want string, flags ...string) {
		s.Helper()
		if err := s.TryBuild(s.T, checkout, s.TempDir(), flags...); err == nil || !strings.Contains(err.Error(), want) {
			s.Errorf("release %q: %v, want %q", flags, err, want)
		}
	}
	refused("releases require a signature", "-version", version)
	refused("lacks tag v0.8.0", "-version", "v0.8.0", "-key", key)
	worktree := filepath.Join(s.TempDir(), "worktree")
	s.run(checkout, nil, "git", "worktree", "add", "--quiet", worktree)
	if err := s.TryBuild(s.T, worktree, s.TempDir(), "-version", version, "-key", key); err == nil || !strings.Contains(err.Error(), "build in a clone") {
		s.Errorf("release in a worktree: %v", err)
	}
	lab.Must(s, os.WriteFile(filepath.Join(checkout, "new"), nil, 0o600))
	refused("the working tree has changes", "-version", version, "-key", key)
}
