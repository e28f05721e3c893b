// Package envoy builds and prints reports of the state of an Envoy, from pages of its admin interface.
//
// It decodes the few fields that it needs with types of its own. The types of go-control-plane would add 9 MB to the
// binary, and cannot decode a configuration dump with an extension that is not linked into it.
package envoy
