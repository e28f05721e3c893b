// Package envoy translates a ProxyServer of the model into Envoy resources.
//
// A Translator returns listeners, routes and clusters of a proxy, and uses earlier messages again where they have not
// changed. Endpoints returns the endpoints of a cluster. The results depend only on the model. All lists
// are sorted, so that equal input gives equal bytes, and every message is validated, so that Envoy does not reject it.
// Comments give the reason for each value that differs from Envoy's default.
package envoy
