package doctor

import "slices"

// Checks are all there are, in the order in which they are made and shown: what others need
// comes before them.
func Checks() []Check {
	return slices.Concat(
		apiChecks(), hostedChecks(), infraChecks(), networkChecks(), wireChecks(), accessChecks(), podChecks(), addressChecks(), clusterChecks(), controlChecks(), dnsDaemonChecks(), dnsChecks(),
		dhcpDaemonChecks(), dhcpChecks(), proxyChecks(), proxyDaemonChecks(), floatingChecks(), connectionChecks(), appsChecks(), driftChecks(), operatorChecks(), leftoverChecks(), probeChecks(),
	)
}
