// Package guest maintains the objects of an Infra in its hosted cluster: the LoadBalancer Service of the apps
// ingress, a ServiceAccount (the reader) that may read only this Service and, on request, MetalLB. It never changes
// or deletes objects that other clients created.
package guest
