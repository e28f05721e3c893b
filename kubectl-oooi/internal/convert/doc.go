// Package convert converts objects of the earlier operator to equivalent objects of oooi, and Ingresses to
// VirtualIngresses. The result depends only on the input files: no cluster is read.
package convert
