// Package manifests embeds the cluster-wide objects, which do not depend on an Infra, as kustomizations.
package manifests

import "embed"

// Files has the folders crds, base and ingress/controller.
//
//go:embed crds base ingress/controller
var Files embed.FS
