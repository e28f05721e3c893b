// Package envoy builds and prints reports of Envoy's state, from responses of its admin interface.
//
// It decodes the few required fields with its types. The types of go-control-plane would add 9 MB to the binary, and cannot decode
// a configuration dump with an extension that is not linked.
package envoy
