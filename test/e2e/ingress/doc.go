// Package e2eingress tests the Ingresses of VirtualIngresses with the programs that they are for,
// a real ingress controller and cert-manager: make e2e-ingress. Both take minutes to build and no
// other test needs them, so its tests have a build tag, the one of test/e2e.
package e2eingress
