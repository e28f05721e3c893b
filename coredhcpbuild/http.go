package main

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/coredhcpbuild/internal/dhcp4"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

// state is the content of /state. It contains no credentials.
type state struct {
	// Ready is set if VMs and leases are known, of any age.
	Ready bool `json:"ready"`
	// Waiting contains the reasons why the server is not ready.
	Waiting []string `json:"waiting,omitempty"`
	// Warnings describes faults that do not prevent answers.
	Warnings []string `json:"warnings,omitempty"`
	// Plugins are the names of the plugins in order, by server.
	Plugins map[string][]string `json:"plugins"`
	// Kubevirt is the state of the plugin kubevirt.
	Kubevirt *kubevirt.State `json:"kubevirt,omitempty"`
	// Leasedb contains the states of the pools of leasedb.
	Leasedb []leasedb.State `json:"leasedb,omitempty"`
	// Selections are the DHCP servers that clients selected, this one included.
	Selections []dhcp4.Selection `json:"selections"`
	// Heard are the last messages of other DHCP servers on the networks of this host, replicas included.
	Heard []dhcp4.Heard `json:"heard"`
	// Offered are the clients that have requested none of their last offers.
	Offered []dhcp4.Offered `json:"offered"`
}

// readiness returns the reasons why the server is not ready. It is not ready once ctx is done.
func readiness(ctx context.Context) (waiting []string) {
	if ctx.Err() != nil {
		waiting = append(waiting, "shutting down")
	}
	if !kubevirt.Ready() {
		waiting = append(waiting, "kubevirt: VMs have not been read yet")
	}
	if !leasedb.Ready() {
		waiting = append(waiting, "leasedb: leases have not been read yet")
	}
	return waiting
}

// warnings returns messages about faults that do not prevent answers.
func warnings() []string { return append(leasedb.Warnings(), kubevirt.Warnings()...) }

// httpHandler serves /healthz, /readyz, /metrics and /state. Once ctx is done, the server is not ready.
func httpHandler(ctx context.Context, c *configuration, server *dhcp4.Server, gatherer prometheus.Gatherer) http.Handler {
	names := map[string][]string{}
	for _, p := range c.Server4.Plugins {
		names["server4"] = append(names["server4"], p.Name)
	}
	return daemon.Handler(func() (bool, any) {
		waiting := readiness(ctx)
		return len(waiting) == 0, map[string][]string{"waiting": waiting, "warnings": warnings()}
	}, func() any {
		waiting := readiness(ctx)
		return state{
			Ready: len(waiting) == 0, Waiting: waiting, Warnings: warnings(), Plugins: names,
			Kubevirt: kubevirt.Status(), Leasedb: leasedb.Status(), Selections: server.Selections(), Heard: server.Heard(), Offered: server.Offered(),
		}
	}, gatherer)
}
