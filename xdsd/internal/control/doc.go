// Package control writes the status of Infras and ProxyServers, from the reports of replicas and from probes, and
// maintains the apps ingress in hosted clusters. One replica leads in a management cluster.
//
// Statuses are computed by pure functions (appsstatus.go, infrastatus.go, proxystatus.go). The reconcilers gather
// their inputs and write their results.
package control
