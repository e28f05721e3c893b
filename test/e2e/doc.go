// Package e2e tests the project's images, objects and commands on real nodes: make e2e. The tests need root
// and containerd, and therefore have a build tag.
package e2e
