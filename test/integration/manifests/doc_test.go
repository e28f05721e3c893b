// Package manifests_test checks the files in manifests/monitoring against the code: alerts and dashboard
// against the registered metrics, and PodMonitors against the rendered pods.
package manifests_test
