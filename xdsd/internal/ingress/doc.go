// Package ingress maintains an Ingress, or routes of Gateway API, for each VirtualIngress: a copy with the names of Services instead of
// labels. On request it also maintains aliases: Services with a fixed name and the endpoints of the selected
// Service.
//
// The generated objects are a function (resolve.go, translate.go, output.go, alias.go) of a VirtualIngress and of the objects in
// the cache, which index.go indexes. The reconciler applies them with one function for all kinds (write.go), prunes
// objects that are no longer wanted, and reports the routes' status from Gateways (parents.go).
package ingress
