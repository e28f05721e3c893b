// Package manifests_test holds what is under manifests against the code: alerts and dashboard
// against the metrics that are registered, PodMonitors against the pods that are rendered.
package manifests_test
