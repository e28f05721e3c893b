package main

import (
	"runtime"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// A statement is an in-toto statement: https://in-toto.io/Statement/v1.
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     any        `json:"predicate"`
}

// A resource is a file, an image or a source with its digests.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

const (
	statementType  = "https://in-toto.io/Statement/v1"
	signatureType  = "https://sigstore.dev/cosign/sign/v1"
	provenanceType = "https://slsa.dev/provenance/v1"
)

// signatureOf returns the statement that cosign signs for an image.
func signatureOf(digest v1.Hash) *statement {
	return &statement{Type: statementType, Subject: []resource{{Digest: map[string]string{digest.Algorithm: digest.Hex}}},
		PredicateType: signatureType, Predicate: struct{}{}}
}

// provenance returns how the subjects were built. It omits times and an identifier of the build, because another build of
// the same commit has the same result.
func (r *release) provenance(subjects []resource) *statement {
	ref := r.source.commit
	if r.options.version != "" {
		ref = "refs/tags/" + r.version
	}
	return &statement{
		Type: statementType, Subject: subjects, PredicateType: provenanceType,
		Predicate: map[string]any{
			"buildDefinition": map[string]any{
				"buildType":          homepage + "/tree/main/tools/release",
				"externalParameters": map[string]string{"version": r.options.version, "registry": r.options.registry, "url": r.options.url, "envoy": r.envoy},
				"resolvedDependencies": []resource{
					{URI: "git+" + homepage + "@" + ref, Digest: map[string]string{"gitCommit": r.source.commit}},
				},
			},
			"runDetails": map[string]any{
				"builder": map[string]any{"id": homepage + "/tree/main/tools/release", "version": map[string]string{"go": runtime.Version()}},
			},
		},
	}
}
