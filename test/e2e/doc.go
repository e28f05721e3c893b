// Package e2e tests what this project ships in Pods, on a real node: make e2e. It takes
// containerd and cgroups of version 1, so its tests have a build tag of their own.
package e2e
