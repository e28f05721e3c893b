// Package objects holds what oooi reads of other people's APIs: HyperShift's
// HostedCluster, OpenShift's Route and the core Service, each cut down to the
// fields that the model uses.
//
// The cut-down types keep their upstream JSON names, so that an object from an
// API server, from a must-gather and from our own snapshot file all decode
// alike. Reading few fields is what lets one process follow a thousand hosted
// clusters in a few megabytes, and what keeps it indifferent to every field that
// a newer release adds.
package objects
