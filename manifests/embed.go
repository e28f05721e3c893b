// Package manifests embeds the kustomizations of the cluster-wide objects, which do not depend on an Infra.
package manifests

import "embed"

// Files contains the directories crds, base and ingress/controller.
//
//go:embed crds base ingress/controller
var Files embed.FS
