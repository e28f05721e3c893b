// Package neighbour selects the probe of leasedb.
package neighbour

import "github.com/densityops/oooi/internal/neighbours"

// Probe finds out which addresses are in use.
var Probe = neighbours.Probe
