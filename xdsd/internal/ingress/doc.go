// Package ingress maintains an Ingress for each VirtualIngress: a copy with the names of Services instead of
// labels. On request it also maintains aliases: Services with a fixed name and the endpoints of the selected
// Service.
//
// The generated objects are a pure function (resolve.go, translate.go, alias.go) of a VirtualIngress and of the
// directory, which indexes Services by labels. The reconciler writes them.
package ingress
