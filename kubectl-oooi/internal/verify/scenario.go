package verify

import (
	"context"
	"slices"

	"github.com/densityops/oooi/internal/probe"
)

// A Client is one of the two pods that send requests.
type Client string

// The clients.
const (
	VLAN Client = "vlan"
	Pod  Client = "pod"
)

// Groups of scenarios.
const (
	GroupDHCP      = "dhcp"
	GroupDNS       = "dns"
	GroupTLS       = "tls"
	GroupApps      = "apps"
	GroupNetwork   = "network"
	GroupIsolation = "isolation"
	// GroupDisruption has the disruptive scenarios.
	GroupDisruption = "disruption"
)

// A Scenario is one promise to VMs or pods.
type Scenario struct {
	// Name identifies the scenario, such as dns-vlan-names. It is stable.
	Name  string
	Group string
	// Title is the promise: a sentence that is true if the scenario passes.
	Title string
	// Clients send the requests.
	Clients []Client
	// Needs is the name of the scenario without which this one has no meaning: it is skipped if that one fails. It is
	// empty for none.
	Needs string
	// Remedy is what to do if the scenario fails, as an imperative.
	Remedy string

	// run runs a scenario that is more than requests, and completes its result, which passes if nothing is changed; the scenario
	// has no steps. It is nil for other scenarios.
	run func(context.Context, *test, *Result) error
	// steps returns the requests of a client, or why the scenario does not apply to it. The scenario passes if all requests pass.
	steps func(*subject, Client) (steps []step, notApplicable string)
}

// both are the clients of scenarios about VMs and pods.
var both = []Client{VLAN, Pod}

// whose names the users that a client stands for.
var whose = map[Client]string{VLAN: "VMs", Pod: "pods"}

// A step is one request with the expected result.
type step struct {
	request probe.Step
	// label describes the request for people.
	label string
	// check returns what is wrong with the outcome, empty if it is as expected.
	check func(*probe.Outcome) string
	// note returns what is unusual about an expected outcome, empty if nothing is; nil for no note.
	note func(*probe.Outcome) string
}

// Scenarios returns all scenarios, by group. A scenario comes after the one that it needs.
func Scenarios() []Scenario {
	return slices.Concat(dhcpScenarios(), dnsScenarios(), tlsScenarios(), appsScenarios(), networkScenarios(), isolationScenarios(), disruptionScenarios())
}

// Quick returns the scenarios that need no VM, disrupt nothing, and end within about ten seconds if they pass. They are the ones
// that doctor runs. Scenarios about other hosted clusters are not among them: their number grows with that of the clusters, and
// the addresses that they request do not answer.
func Quick() []Scenario {
	return slices.DeleteFunc(Scenarios(), func(s Scenario) bool { return s.run != nil || s.Group == GroupIsolation })
}

// without returns a check that reports an error of the request, and else the result of another check.
func without(check func(*probe.Outcome) string) func(*probe.Outcome) string {
	return func(o *probe.Outcome) string {
		if o.Error != "" {
			return o.Error
		}
		return check(o)
	}
}

// answered is a check that accepts any response.
func answered(o *probe.Outcome) string { return o.Error }
