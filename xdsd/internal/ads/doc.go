// Package ads serves configuration to Envoy by delta ADS. It knows listeners,
// clusters, route configurations and endpoints, and nothing of what they are for.
//
// A proxy is all Envoys of one node.cluster, "namespace/name". Each has a cache of
// its own: a snapshot of listeners, clusters and routes, and beside it a linear
// cache of endpoints, so that a changed endpoint costs neither a snapshot nor a hash
// of everything. Endpoints are handed over once, by name, and reach the proxies
// whose clusters name them; no proxy can ask for another's.
//
// Every resource is versioned by its content. An Envoy that comes back, to this
// process or to its successor, is sent what it does not have.
package ads
