// Package site reads an Infra or a standalone ProxyServer with everything around it: objects of the management cluster, the
// problems that oooi's daemons report, and logs of crashed containers. Commands evaluate the Site; a bundle stores its Facts.
package site
