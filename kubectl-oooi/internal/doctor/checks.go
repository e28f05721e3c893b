package doctor

import "slices"

// Checks returns all checks, in the order in which they run and are shown. A check comes after those in its
// Needs and After.
func Checks() []Check {
	return slices.Concat(
		apiChecks(), hostedChecks(), infraChecks(), networkChecks(), networkTypeChecks(), accessChecks(), podChecks(), addressChecks(), clusterChecks(), controlChecks(), dnsDaemonChecks(), dnsChecks(),
		dhcpDaemonChecks(), dhcpChecks(), proxyChecks(), proxyDaemonChecks(), floatingChecks(), connectionChecks(), appsChecks(), driftChecks(), operatorChecks(), leftoverChecks(), probeChecks(),
	)
}
