// Package setup deploys an Infra or a standalone ProxyServer, and deletes it: it reads files and the cluster, refuses
// input that cannot work before it changes an object of the Infra, applies the objects, and waits until each
// component works.
package setup
