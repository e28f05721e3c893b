// Package ads serves listeners, clusters, route configurations and endpoints to Envoys over delta ADS.
//
// A proxy is the set of all Envoys with the same node.cluster, "namespace/name". Its resources are kept by type, so that a
// change of one type costs nothing in the others, and no Envoy can request the resources of another proxy. The version of a
// resource is a hash of its content: an Envoy that reconnects, to this process or to a restarted one, is sent only the
// resources that differ from those it has.
//
// go-control-plane's delta server implements the protocol. Its caches are not used: LinearCache compares all of an Envoy's
// resources with their versions for each change, and cannot send resources again that Envoy has rejected, or that it needs
// because their cluster was replaced.
package ads
