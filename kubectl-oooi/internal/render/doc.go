// Package render renders the objects that setup applies for an Infra or a standalone ProxyServer: workloads, their
// configuration and their rights. It is pure: it makes no requests, and equal input gives equal objects in the same
// order.
package render
