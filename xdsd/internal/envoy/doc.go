// Package envoy says in Envoy's words what a proxy of the model is to do.
//
// It is a pure function of the model: Translate makes listeners, routes and clusters,
// Endpoints what a cluster connects to. Everything is sorted and every message is
// checked, so that equal input gives equal bytes and Envoy has nothing to refuse. What
// differs from Envoy's defaults says why.
package envoy
