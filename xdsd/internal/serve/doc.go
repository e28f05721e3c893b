// Package serve implements xdsd serve: it watches the model and the endpoints of Services, translates what changed and
// updates the ADS server, reports the state of its replica, and sets Envoy's log level.
package serve
