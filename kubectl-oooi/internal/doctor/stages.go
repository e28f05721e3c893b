package doctor

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// Stage is a group of checks. Its failures are possible causes of failures in later stages.
type Stage struct {
	Name   string
	Checks []Check
}

// Stages returns all stages, in the order of causes.
func Stages() []Stage {
	return []Stage{
		{"access", []Check{apisServed, dataReadable}},
		{"nodes", []Check{nodesReady}},
		{"control", []Check{controlRuns, controlLeads, statusesWritten, controlObserved, daemonsCurrent, objectsKept}},
		{"cluster", []Check{infraValid, clusterExists, clusterAvailable, servicesPublished, nodePoolsOnNetwork}},
		{"network", []Check{nadExists, nadWithoutIPAM, podsOnNetwork, networkAllowed, networkSuitable, addressesUnique}},
		{"drift", []Check{objectsAsRendered, noOrphans, hostedClustersClean}},
		{"pods", []Check{workloadsExist, podsCreated, podsReady, podsStable, podsOnVLAN, podsAnswer, configurationLoaded, snapshotsWritten}},
		{"vlan", []Check{interfacesUp, interfaceAddresses, hostsUnique, mtusEqual, podsReachable, hostsAnswer, portsOpen, handshakesFinish}},
		{"dhcp", []Check{
			resolversOffered, leasesStored, rangesFree, onlyDHCPServer, offersRequested, packetsHandled, dhcpReady,
			macsUnique, vmsKnown, clientsKnown, vmsLeased, annotationsValid, leasesKept, leasesUnused, rangesSufficient,
		}},
		{"dns", []Check{noLoop, upstreamsAnswer, dnsReady, namesServed, domainForwarded, registryReached}},
		{"proxy", []Check{
			proxyExists, configurationValid, backendsConnect, backendsShake, certificatesValid,
			withinLimits, addressHeldOnce, addressHeld, serviceAccepts, endpointsOwn,
		}},
		{"listeners", []Check{proxyReady}}, // after proxy: a backend that does not respond fails the listeners' handshakes
		{"apps", []Check{appsReady}},
		{"probe", []Check{scenariosPass}},
	}
}

// Checks returns the checks of all stages in order.
func Checks() []Check {
	var list []Check
	for _, s := range Stages() {
		list = append(list, s.Checks...)
	}
	return list
}

// Reads returns the data that the checks read, without duplicates.
func Reads() []site.Read {
	var list []site.Read
	for _, c := range Checks() {
		for _, r := range c.Reads {
			if !slices.Contains(list, r) {
				list = append(list, r)
			}
		}
	}
	return list
}

// RoleName is the name of the ClusterRole that Role returns.
const RoleName = "oooi-doctor"

// Role returns a ClusterRole with exactly the permissions that the checks need. It grants no access to Secrets.
func Role() *rbacv1.ClusterRole { return site.Role(RoleName, Reads()) }
