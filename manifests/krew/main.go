// The krew command builds kubectl-oooi for every platform in oooi.yaml, and writes the archives and the krew manifest
// with the version and the checksums.
package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	version := flag.String("version", "", "tag of the release, such as v1.2.3")
	out := flag.String("out", "dist", "directory for the archives and the manifest")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, ".", *version, *out, compile)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A compiler builds the plugin from the repository at root for a platform, and writes the binary to a file.
type compiler func(ctx context.Context, root, os, arch, file string) error

// compile is the compiler that runs go build.
func compile(ctx context.Context, root, system, arch, file string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", file, "./kubectl-oooi") //nolint:gosec // no shell
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building for %s/%s: %w", system, arch, err)
	}
	return nil
}

// run fills in the template oooi.yaml of the repository at root, and writes manifest and archives to the directory out.
func run(ctx context.Context, root, version, out string, build compiler) error {
	text, err := os.ReadFile(filepath.Join(root, "manifests", "krew", "oooi.yaml"))
	if err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	if !versions.MatchString(version) {
		return fmt.Errorf("-version %q: want vMAJOR.MINOR.PATCH", version)
	}
	var template plugin
	if err := yaml.UnmarshalStrict(text, &template); err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	if out, err = filepath.Abs(out); err != nil {
		return fmt.Errorf("-out: %w", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // not secret
		return fmt.Errorf("-out: %w", err)
	}
	filled := strings.ReplaceAll(string(text), "VERSION", version)
	for _, p := range template.Spec.Platforms {
		system, arch := p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]
		sum, err := pack(ctx, root, filepath.Join(out, path.Base(p.URI)), p.Bin, system, arch, build)
		if err != nil {
			return err
		}
		filled = strings.ReplaceAll(filled, p.SHA256+"\n", sum+"\n")
	}
	_, body, _ := strings.Cut(filled, "\n") // without the comment about the template
	if err := check([]byte(body), "oooi"); err != nil {
		return fmt.Errorf("krew would refuse the manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(out, "oooi.yaml"), []byte(body), 0o644); err != nil { //nolint:gosec // not secret
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return nil
}

// pack builds the plugin for a platform, writes the archive and returns its SHA-256 checksum.
func pack(ctx context.Context, root, archive, binary, system, arch string, build compiler) (string, error) {
	temp, err := os.MkdirTemp("", "krew-")
	if err != nil {
		return "", fmt.Errorf("creating a build directory: %w", err)
	}
	built := filepath.Join(temp, binary)
	sum := ""
	err = build(ctx, root, system, arch, built)
	if err == nil {
		sum, err = writeArchive(archive, built, filepath.Join(root, "LICENSE"))
	}
	return sum, errors.Join(err, os.RemoveAll(temp))
}

// writeArchive writes files to a tar.gz archive and returns its SHA-256 checksum. The archive is reproducible: it has
// no times and no owners.
func writeArchive(archive string, files ...string) (string, error) {
	out, err := os.Create(archive)
	if err != nil {
		return "", fmt.Errorf("writing an archive: %w", err)
	}
	hash := sha256.New()
	zip := gzip.NewWriter(io.MultiWriter(out, hash))
	list := tar.NewWriter(zip)
	var errs []error
	for _, file := range files {
		errs = append(errs, addFile(list, file))
	}
	errs = append(errs, list.Close(), zip.Close(), out.Close())
	if err := errors.Join(errs...); err != nil {
		return "", fmt.Errorf("writing %s: %w", archive, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// addFile adds a file to an archive, without its directory. Files other than LICENSE are executable.
func addFile(list *tar.Writer, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err //nolint:wrapcheck // the error names the file
	}
	mode := int64(0o644)
	if filepath.Base(file) != "LICENSE" {
		mode = 0o755
	}
	if err := list.WriteHeader(&tar.Header{Name: filepath.Base(file), Mode: mode, Size: int64(len(text)), Format: tar.FormatUSTAR}); err != nil {
		return err //nolint:wrapcheck // the caller wraps it
	}
	_, err = list.Write(text)
	return err //nolint:wrapcheck // the caller wraps it
}
