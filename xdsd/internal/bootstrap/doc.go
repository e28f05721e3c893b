// Package bootstrap generates Envoy's bootstrap configuration: its node, the ADS cluster, the admin interface, the
// metrics listener and limits. Envoy gets everything else from xdsd. The package does no I/O.
//
// Envoy's admin interface can stop the process and shows its whole configuration. It is therefore a Unix socket that
// only Envoy's user can open. A listener on the pod network forwards only GET /ready and GET /stats/prometheus.
//
// Envoy is not ready, and the metrics listener accepts no connections, until xdsd has sent clusters and listeners once.
// Readiness probes can therefore use /ready. Liveness probes must not: they would kill an Envoy that waits for xdsd.
package bootstrap
