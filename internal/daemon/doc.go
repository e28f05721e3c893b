// Package daemon contains the code that all daemons share: flags from environment variables, logging, and the
// HTTP endpoints for health, metrics and state.
package daemon
