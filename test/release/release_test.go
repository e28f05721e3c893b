//go:build release

// Package release_test builds a release and installs it from a registry and a file server on the loopback interface.
package release_test

import (
	"archive/tar"
	"bytes"
	"context"
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
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

const version = "v0.9.0"

// A site has a release in a folder, what it was published to, and the programs that read it.
type site struct {
	*testing.T
	dist     string
	registry string // host and port
	files    string // URL of the file server
	public   *ecdsa.PublicKey
	tools    string // folder with crane and krew
}

// TestRelease builds a release, with a throwaway key, twice, and installs it with krew and Helm.
func TestRelease(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{T: t, dist: filepath.Join(t.TempDir(), "dist"), tools: t.TempDir()}
	s.run("", nil, "go", "build", "-C", filepath.Join(root, "tools", "release"), "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", s.tools+"/",
		".", "github.com/google/go-containerregistry/cmd/crane", "sigs.k8s.io/krew/cmd/krew")
	s.startRegistry()
	server := httptest.NewServer(http.StripPrefix("/"+version+"/", http.FileServer(http.Dir(s.dist))))
	t.Cleanup(server.Close)
	s.files = server.URL
	envoy := s.registry + "/envoyproxy/envoy"
	empty := filepath.Join(t.TempDir(), "empty.tar")
	if err := os.WriteFile(empty, make([]byte, 1024), 0o600); err != nil { // an empty tar archive
		t.Fatal(err)
	}
	s.crane("append", "-f", empty, "-t", envoy+":distroless-v1.40.0")
	envoy += "@" + strings.TrimSpace(s.crane("digest", envoy+":distroless-v1.40.0"))

	key := s.newKey()
	one, two := filepath.Join(t.TempDir(), "one"), filepath.Join(t.TempDir(), "a", "longer", "path")
	s.checkout(root, one)
	s.run("", nil, "git", "clone", "--quiet", one, two)
	again := filepath.Join(t.TempDir(), "again")
	s.release(one, s.dist, "-key", key, "-push")
	s.release(two, again, "-key", key)

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

// run runs a program in a folder, with additional environment variables, and returns its output.
func (s *site) run(dir string, env []string, name string, args ...string) string {
	s.Helper()
	out, err := s.try(dir, env, name, args...)
	if err != nil {
		s.Fatal(err)
	}
	return out
}

func (s *site) try(dir string, env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", cmd, err, out, &stderr)
	}
	return string(out), nil
}

func (s *site) crane(args ...string) string {
	s.Helper()
	return s.run("", nil, filepath.Join(s.tools, "crane"), args...)
}

// startRegistry starts an OCI registry in memory. It has no referrers API, as many registries do not.
func (s *site) startRegistry() {
	s.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	s.registry = listener.Addr().String()
	if err := listener.Close(); err != nil {
		s.Fatal(err)
	}
	cmd := exec.CommandContext(s.Context(), filepath.Join(s.tools, "crane"), "registry", "serve", "--address", s.registry)
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = cmd.Wait() }) // the context has ended it
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		response, err := http.Get("http://" + s.registry + "/v2/")
		if err == nil {
			_ = response.Body.Close()
			return
		}
		if time.Now().After(end) {
			s.Fatal(err)
		}
	}
}

// newKey writes a private key and returns its path.
func (s *site) newKey() string {
	s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	s.public = &key.PublicKey
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		s.Fatal(err)
	}
	path := filepath.Join(s.TempDir(), "oooi.key")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// checkout clones the repository to a folder, and commits and tags the files of the working tree there.
func (s *site) checkout(root, folder string) {
	s.Helper()
	s.run("", nil, "git", "clone", "--quiet", root, folder)
	for name := range strings.SplitSeq(strings.Trim(s.run(root, nil, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"), "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(folder, name)
		info, err := os.Stat(from)
		if errors.Is(err, fs.ErrNotExist) {
			err = os.RemoveAll(to) // deleted in the working tree
		} else if err == nil {
			var content []byte
			if content, err = os.ReadFile(from); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, info.Mode()))
			}
		}
		if err != nil {
			s.Fatal(err)
		}
	}
	s.run(folder, nil, "git", "add", "--all")
	s.run(folder, nil, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "--allow-empty", "-m", "Test")
	s.run(folder, nil, "git", "tag", version)
}

// release runs the release command of a checkout. Unless tests run at full length, it builds for this platform only.
func (s *site) release(checkout, dist string, flags ...string) {
	s.Helper()
	if out, err := s.tryRelease(checkout, dist, flags...); err != nil {
		s.Fatal(out, err)
	}
}

func (s *site) tryRelease(checkout, dist string, flags ...string) (string, error) {
	args := []string{"-root", checkout, "-out", dist, "-version", version, "-registry", s.registry, "-url", s.files, "-envoy", s.registry + "/envoyproxy/envoy:distroless-v1.40.0"}
	if !lab.Long() {
		args = append(args, "-archs", runtime.GOARCH, "-platforms", runtime.GOOS+"/"+runtime.GOARCH)
	}
	return s.try("", nil, filepath.Join(s.tools, "release"), append(args, flags...)...)
}

// sameFiles compares all files of two folders.
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal(text, &b); err != nil {
		s.Fatal(err)
	}
	e := b.Envelope
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload))
	if len(e.Signatures) != 1 || !ecdsa.VerifyASN1(s.public, sum[:], e.Signatures[0].Sig) {
		s.Fatalf("the signature is invalid: %s", text)
	}
	st := &statement{}
	if err := json.Unmarshal(e.Payload, st); err != nil {
		s.Fatal(err)
	}
	return st
}

// checksums verifies checksums.txt and its signature, and that both it and the provenance have all files.
func (s *site) checksums() {
	files := filesOf(s.T, s.dist)
	var b sigstoreBundle
	if err := json.Unmarshal(files["checksums.txt.sigstore.json"], &b); err != nil {
		s.Fatal(err)
	}
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
	index := filepath.Join(s.TempDir(), "index")
	manifest, err := os.ReadFile(filepath.Join(s.dist, "oooi.yaml"))
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(index, "plugins"), 0o755), os.WriteFile(filepath.Join(index, "plugins", "oooi.yaml"), manifest, 0o600))
	}
	if err != nil {
		s.Fatal(err)
	}
	s.run(index, nil, "git", "init", "--quiet")
	s.run(index, nil, "git", "add", "--all")
	s.run(index, nil, "git", "-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "-m", "Test")
	krewRoot := s.TempDir()
	env := []string{"KREW_ROOT=" + krewRoot, "KREW_NO_UPGRADE_CHECK=1"}
	krew := filepath.Join(s.tools, "krew")
	s.run("", env, krew, "index", "add", "test", "file://"+index)
	s.run("", env, krew, "install", "test/oooi")
	if licenses, _ := filepath.Glob(filepath.Join(krewRoot, "store", "oooi", version, "LICENSE")); len(licenses) != 1 {
		s.Error("krew installed no LICENSE")
	}
	plugin := filepath.Join(krewRoot, "bin", "kubectl-oooi")
	var printed struct {
		Client struct{ Version, Image, EnvoyImage string }
	}
	if err := json.Unmarshal([]byte(s.run("", nil, plugin, "version", "--client", "-o", "json")), &printed); err != nil {
		s.Fatal(err)
	}
	c := printed.Client
	if c.Version != version || c.EnvoyImage != envoy || !strings.HasPrefix(c.Image, s.registry+"/oooi@sha256:") {
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
	if digest := strings.TrimSpace(s.crane("digest", s.registry+"/oooi:"+version)); s.registry+"/oooi@"+digest != image {
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
		if err := json.Unmarshal([]byte(s.crane("config", "--platform", platform, image)), &config); err != nil {
			s.Fatal(err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = archive.Close() }()
	var all []archived
	for list := tar.NewReader(archive); ; {
		header, err := list.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(list)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, archived{header, content})
	}
}

// referrers checks the artifacts that refer to the image.
func (s *site) referrers(image string) {
	repository, digest, _ := strings.Cut(image, "@")
	var index struct {
		Manifests []struct{ Digest, ArtifactType string }
	}
	if err := json.Unmarshal([]byte(s.crane("manifest", repository+":"+strings.ReplaceAll(digest, ":", "-"))), &index); err != nil {
		s.Fatal(err)
	}
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
	if err != nil {
		s.Fatal(err)
	}
	home := s.TempDir()
	env := []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home}
	number := strings.TrimPrefix(version, "v")
	for _, name := range []string{"oooi", "virtual-ingress"} {
		dir := s.TempDir()
		s.run(dir, env, helm, "pull", "oci://"+s.registry+"/charts/"+name, "--version", number, "--plain-http")
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

// manifests checks the image in the kustomizations.
func (s *site) manifests(image string) {
	folder := s.TempDir()
	s.run(folder, nil, "tar", "-xzf", filepath.Join(s.dist, "oooi-manifests.tar.gz"))
	for _, name := range []string{"base/control/deployment.yaml", "ingress/controller/deployment.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, "oooi-manifests", name))
		if err != nil || !strings.Contains(string(text), " image: "+image+"\n") {
			s.Errorf("%s does not deploy %s (%v)", name, image, err)
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
	if err != nil {
		s.Fatal(err)
	}
	_, err = s.try("", []string{"KREW_ROOT=" + s.TempDir(), "KREW_NO_UPGRADE_CHECK=1"}, filepath.Join(s.tools, "krew"), "install", "--manifest", filepath.Join(s.dist, "oooi.yaml"))
	if err == nil || !strings.Contains(err.Error(), "checksum") {
		s.Errorf("krew installs an archive with another checksum: %v", err)
	}
}

// refusals checks that no release is built without a key, for another tag, or with changes in the working tree.
func (s *site) refusals(checkout, key string) {
	refused := func(want string, flags ...string) {
		s.Helper()
		if _, err := s.tryRelease(checkout, s.TempDir(), flags...); err == nil || !strings.Contains(err.Error(), want) {
			s.Errorf("release %q: %v, want %q", flags, err, want)
		}
	}
	refused("a release is signed")
	refused("does not have the tag v0.8.0", "-version", "v0.8.0", "-key", key)
	if err := os.WriteFile(filepath.Join(checkout, "new"), nil, 0o600); err != nil {
		s.Fatal(err)
	}
	refused("the working tree has changes", "-key", key)
}
