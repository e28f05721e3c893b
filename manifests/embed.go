// Package manifests holds the objects that are the same for every Infra, as
// 'kubectl apply -k' takes them.
package manifests

import "embed"

// Files are crds and base, with their kustomizations.
//
//go:embed crds base
var Files embed.FS
