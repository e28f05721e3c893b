// Package release has the version of the plugin, and the images of its release. 'make release' sets
// the images with the linker.
package release

import "runtime/debug"

// Repository is the repository of oooi's released images.
const Repository = "ghcr.io/densityops/oooi"

// Image is the image of oooi, by digest; empty unless 'make release' built the plugin.
var Image string

// EnvoyImage is the Envoy image with which the release was tested, by digest if 'make release' built the plugin.
var EnvoyImage = "docker.io/envoyproxy/envoy:distroless-v1.40.0"

// Version returns the version that the go command has recorded in the binary: the tag of a release, or a version
// that is derived from the commit and ends in +dirty if the working tree had changes. It is a variable so that tests can run as
// other versions.
var Version = func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
