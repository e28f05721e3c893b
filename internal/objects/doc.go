// Package objects has the reduced types of other APIs that oooi reads: HyperShift's HostedCluster,
// OpenShift's Route, and Service and EndpointSlice of Kubernetes, each with only the fields in use.
//
// The types keep their upstream JSON names, so that objects from an API server, from a must-gather and from a
// snapshot file decode alike. With few fields, one process can watch a thousand hosted clusters in a few
// megabytes, and fields that newer releases add are ignored.
package objects
