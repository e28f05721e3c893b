// Package render says which objects an Infra, or a ProxyServer that stands alone, amounts to:
// the workloads that serve it, their configuration and their rights. It is pure: equal input
// makes equal objects, in the same order, and nothing is asked.
package render
