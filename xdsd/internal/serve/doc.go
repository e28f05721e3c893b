// Package serve keeps the configuration of Envoys true: it follows the model and the
// endpoints of Services, translates what changed and hands it to the ADS server.
package serve
