// Package setup deploys an Infra or a standalone ProxyServer, and deletes it. To deploy, it reads files and the
// cluster, rejects input that cannot work before it changes any object of the Infra, applies the objects one component
// after the other, and waits until each component works.
package setup
