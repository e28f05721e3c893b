// Package manifests holds the objects that are the same for every Infra, as
// 'kubectl apply -k' takes them.
package manifests

import "embed"

// Files are crds, base and the controller of ingress, with their kustomizations.
//
//go:embed crds base ingress/controller
var Files embed.FS
