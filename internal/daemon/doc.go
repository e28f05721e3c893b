// Package daemon is what our daemons have in common on the outside: flags out of the
// environment, a logger, and the addresses of health, metrics and state.
package daemon
