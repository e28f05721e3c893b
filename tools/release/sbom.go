package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// billOfMaterials returns the bill of materials of a component that consists of binaries, as CycloneDX JSON, with the
// modules that the go command has recorded in the binaries.
func billOfMaterials(subject cyclonedx.Component, binaries []binary, when time.Time) ([]byte, error) {
	libraries := map[string]cyclonedx.Component{}
	var programs []cyclonedx.Component
	var dependencies []cyclonedx.Dependency
	refs := []string{}
	for _, b := range binaries {
		p := cyclonedx.Component{
			BOMRef: fmt.Sprintf("%s?os=%s&arch=%s", b.name, b.system, b.arch), Type: cyclonedx.ComponentTypeApplication,
			Name: b.name, Version: b.info.Main.Version, PackageURL: packageURL(b.info.Main.Path, b.info.Main.Version), Hashes: hashes(b.content),
		}
		p.PackageURL += strings.TrimPrefix(p.BOMRef, b.name) + "#" + strings.TrimPrefix(strings.TrimPrefix(b.info.Path, b.info.Main.Path), "/")
		modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(b.info.GoVersion, "go")}}
		var used []string
		for _, m := range append(modules, b.info.Deps...) {
			if m.Replace != nil {
				m = m.Replace
			}
			url := packageURL(m.Path, m.Version)
			libraries[url] = cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url}
			used = append(used, url)
		}
		programs, refs = append(programs, p), append(refs, p.BOMRef)
		dependencies = append(dependencies, cyclonedx.Dependency{Ref: p.BOMRef, Dependencies: &used})
	}
	subject.BOMRef = "subject"
	dependencies = append([]cyclonedx.Dependency{{Ref: subject.BOMRef, Dependencies: &refs}}, dependencies...)
	for _, url := range slices.Sorted(maps.Keys(libraries)) {
		programs = append(programs, libraries[url])
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Timestamp: when.Format(time.RFC3339), Component: &subject}
	bom.Components, bom.Dependencies = &programs, &dependencies
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cyclonedx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("encoding a bill of materials: %w", err)
	}
	return out.Bytes(), nil
}

// packageURL returns the package URL of a Go module.
func packageURL(module, version string) string {
	return "pkg:golang/" + module + "@" + strings.ReplaceAll(version, "+", "%2B")
}

func hashes(content []byte) *[]cyclonedx.Hash {
	sum := sha256.Sum256(content)
	return &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
}
