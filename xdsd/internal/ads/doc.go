// Package ads serves listeners, clusters, route configurations and endpoints to Envoys over delta ADS.
//
// A proxy is the set of all Envoys with the same node.cluster, "namespace/name". Each proxy has a table for each type, so
// that a change of one type costs nothing in the others. Endpoints are set once by name, and are sent to the proxies whose
// clusters reference that name. A proxy cannot request the endpoints of another one.
//
// The version of a resource is a hash of its content. An Envoy that reconnects, to this process or to a restarted one,
// is sent only the resources that differ from those it has.
package ads
