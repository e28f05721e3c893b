// Package e2e tests what this project ships in Pods, on a real node: make e2e. It needs
// root and containerd, so its tests have a build tag of their own.
package e2e
