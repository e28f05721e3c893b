// Package guest keeps what an Infra needs inside its hosted cluster: the LoadBalancer Service
// of the applications, a reader that may see that Service and nothing else, and MetalLB
// where it is asked for. It takes nothing over from others, and takes away only its own.
package guest
