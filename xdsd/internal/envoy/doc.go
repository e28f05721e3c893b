// Package envoy translates a ProxyServer of the model into Envoy resources.
//
// Translate and Endpoints are pure functions of the model: Translate returns listeners, routes and clusters, Endpoints
// returns the endpoints of a cluster. A Translator returns what Translate does, and uses earlier messages again. All lists
// are sorted, so that equal input gives equal bytes, and every message is validated, so that Envoy does not reject it.
// Comments give the reason for each value that differs from Envoy's default.
package envoy
