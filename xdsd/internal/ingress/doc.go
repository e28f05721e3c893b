// Package ingress keeps an Ingress for each VirtualIngress: the same, with the names of
// Services where the VirtualIngress has labels; on request also a Service of a fixed name, an
// alias, with the endpoints of the one that was found.
//
// What an object amounts to is a pure function (resolve.go, translate.go, alias.go) of it and
// of the directory, which knows Services by their labels. The reconciler writes what that says.
package ingress
