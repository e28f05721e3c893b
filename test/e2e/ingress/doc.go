// Package e2eingress tests generated Ingresses with a real ingress controller, Contour, and with
// cert-manager: make e2e-ingress. Both take minutes to build and only these tests need them, so the tests
// have the build tag of test/e2e.
package e2eingress
