package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// fakeCompiler writes the platform instead of a binary.
func fakeCompiler(_ context.Context, _, system, arch, file string) error {
	return os.WriteFile(file, []byte(system+" "+arch), 0o700)
}

// build runs the command with fakeCompiler as version v1.2.3.
func build(t *testing.T) (folder string, manifest []byte) {
	t.Helper()
	folder = t.TempDir()
	if err := run(t.Context(), root, "v1.2.3", folder, fakeCompiler); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(folder, "oooi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return folder, manifest
}

// TestManifestAndArchives checks the archives against the manifest: names, checksums and contents.
func TestManifestAndArchives(t *testing.T) {
	folder, text := build(t)
	var p plugin
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"VERSION", "SHA256"} {
		if bytes.Contains(text, []byte(word)) {
			t.Errorf("%s was not filled in:\n%s", word, text)
		}
	}
	if len(p.Spec.Platforms) != 4 {
		t.Errorf("%d platforms", len(p.Spec.Platforms))
	}
	for _, pl := range p.Spec.Platforms {
		system, arch := pl.Selector.MatchLabels["os"], pl.Selector.MatchLabels["arch"]
		archive, err := os.ReadFile(filepath.Join(folder, path.Base(pl.URI)))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(archive); hex.EncodeToString(sum[:]) != pl.SHA256 {
			t.Errorf("%s/%s: the sha256 is not that of the archive", system, arch)
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(archive))
		if err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		for list := tar.NewReader(unzipped); ; {
			header, err := list.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			content, _ := io.ReadAll(list)
			if err != nil {
				t.Fatal(err)
			}
			if header.Name == pl.Bin && header.Mode&0o111 == 0 {
				t.Errorf("%s/%s: %s is not executable", system, arch, pl.Bin)
			}
			files[header.Name] = string(content)
		}
		if files[pl.Bin] != system+" "+arch {
			t.Errorf("%s/%s: %s is %q", system, arch, pl.Bin, files[pl.Bin])
		}
		for _, f := range pl.Files {
			if files[f.From] == "" {
				t.Errorf("%s/%s: no %s in the archive", system, arch, f.From)
			}
		}
	}
	again, _ := build(t)
	one, err1 := os.ReadFile(filepath.Join(folder, "kubectl-oooi_linux_amd64.tar.gz"))
	two, err2 := os.ReadFile(filepath.Join(again, "kubectl-oooi_linux_amd64.tar.gz"))
	if err := errors.Join(err1, err2); err != nil || !bytes.Equal(one, two) {
		t.Errorf("two builds of the same files differ (%v)", err)
	}
}

func TestBuildFails(t *testing.T) {
	broken := func(context.Context, string, string, string, string) error { return errors.New("no compiler") }
	folder := t.TempDir()
	if err := run(t.Context(), root, "v1.2.3", folder, broken); err == nil {
		t.Error("no error")
	}
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3.4", "v01.2.3", "v1.2.3-dirty+"} {
		if err := run(t.Context(), root, version, folder, fakeCompiler); err == nil {
			t.Errorf("version %q is accepted", version)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "oooi.yaml")); err == nil {
		t.Error("a manifest was written")
	}
}

// TestCheck changes one value of a valid manifest at a time.
func TestCheck(t *testing.T) {
	_, valid := build(t)
	if err := check(valid, "oooi"); err != nil {
		t.Fatal(err)
	}
	text := string(valid)
	sum := text[strings.Index(text, "sha256: ")+8:][:64]
	for field, change := range map[string][2]string{
		"metadata.name":            {"name: oooi\n", "name: kubectl-oooi\n"},
		"apiVersion":               {"v1alpha2", "v1alpha3"},
		"version: ":                {"version: v1.2.3", "version: 1.2.3"},
		"homepage":                 {"homepage: https", "homepage: http"},
		"shortDescription":         {"shortDescription: ", "shortDescription: " + strings.Repeat("long ", 10)},
		"description":              {"  description: |", "  other: |"},
		"uri":                      {"uri: https", "uri: http"},
		"the version and":          {"/v1.2.3/", "/v1.2.4/"},
		"sha256":                   {sum, sum[1:]},
		"64 hexadecimal":           {sum, strings.ToUpper(sum)},
		"bin":                      {"bin: kubectl-oooi", "bin: oooi"},
		"no LICENSE":               {", {from: LICENSE, to: .}", ""},
		"files":                    {"{from: LICENSE, to: .}", "{from: LICENSE, to: ../..}"},
		"selected twice":           {"arch: arm64", "arch: amd64"},
		"selects no":               {"arch: arm64", "arch: mips"},
		`label "kernel"`:           {"arch: arm64", "arch: arm64, kernel: x"},
		"the list is empty":        {"files: [{from: kubectl-oooi, to: .}, {from: LICENSE, to: .}]", "files: []"},
		`unknown field "platform"`: {"platforms:", "platform:"},
	} {
		broken := strings.Replace(text, change[0], change[1], 1)
		err := check([]byte(broken), "oooi")
		switch {
		case broken == text:
			t.Errorf("%s: the test changes nothing", field)
		case field == "description" && err != nil: // rejected as an unknown field
		case err == nil || !strings.Contains(err.Error(), field):
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := check(valid, "other"); err == nil {
		t.Error("a manifest with another name is accepted")
	}
}

// TestPlatforms checks that krew supports each platform of the manifest, and that the archive is named after it.
func TestPlatforms(t *testing.T) {
	_, text := build(t)
	var p plugin
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatal(err)
	}
	for _, pl := range p.Spec.Platforms {
		platform := pl.Selector.MatchLabels
		known := slices.ContainsFunc(systems, func(s labels.Set) bool { return s["os"] == platform["os"] && s["arch"] == platform["arch"] })
		if want := "_" + platform["os"] + "_" + platform["arch"] + "."; !known || !strings.Contains(pl.URI, want) {
			t.Errorf("%s: not %s", pl.URI, want)
		}
	}
}
