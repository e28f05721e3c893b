// Package daemon has what the daemons share: flags from environment variables, logging, and the HTTP
// endpoints for health, metrics and state.
package daemon
