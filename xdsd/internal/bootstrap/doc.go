// Package bootstrap makes the configuration that Envoy starts with: who it is,
// where its xdsd is, its admin interface, its metrics and its limits. All the
// rest comes from xdsd. It does no I/O.
//
// Envoy's admin interface can end the process and shows everything, so it is a
// Unix socket that its own user alone may open. A listener on the pod network
// passes on the two requests that others need: GET /ready and GET
// /stats/prometheus.
//
// Envoy is not ready, and that listener takes no connection, until xdsd has
// given it clusters and listeners once. A readiness probe may thus ask for
// /ready; a liveness probe that does so kills an Envoy which waits for xdsd.
package bootstrap
