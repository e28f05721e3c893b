package main

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

// state is what /state shows. It holds no secret.
type state struct {
	// Ready: there is something to answer from, whatever its age.
	Ready bool `json:"ready"`
	// Waiting is what is not ready.
	Waiting []string `json:"waiting,omitempty"`
	// Warnings say what is wrong although clients are answered.
	Warnings []string `json:"warnings,omitempty"`
	// Plugins are those that are asked, in their order, by server.
	Plugins map[string][]string `json:"plugins"`
	// Kubevirt is who is known.
	Kubevirt *kubevirt.State `json:"kubevirt,omitempty"`
	// Leasedb is who has which address, by pool.
	Leasedb []leasedb.State `json:"leasedb,omitempty"`
}

// readiness names what is not ready.
func readiness(ctx context.Context) (waiting []string) {
	if ctx.Err() != nil {
		waiting = append(waiting, "ending")
	}
	if !kubevirt.Ready() {
		waiting = append(waiting, "kubevirt: VMs are not read yet")
	}
	if !leasedb.Ready() {
		waiting = append(waiting, "leasedb: leases are not read yet")
	}
	return waiting
}

// warnings say what is wrong although clients are answered.
func warnings() []string { return append(leasedb.Warnings(), kubevirt.Warnings()...) }

// httpHandler serves /healthz, /readyz, /metrics and /state. With the end of the context the
// server is ready no more.
func httpHandler(ctx context.Context, c *configuration, gatherer prometheus.Gatherer) http.Handler {
	names := map[string][]string{}
	for _, p := range c.Server4.Plugins {
		names["server4"] = append(names["server4"], p.Name)
	}
	return daemon.Handler(func() (bool, any) {
		waiting := readiness(ctx)
		return len(waiting) == 0, map[string][]string{"waiting": waiting, "warnings": warnings()}
	}, func() any {
		waiting := readiness(ctx)
		return state{Ready: len(waiting) == 0, Waiting: waiting, Warnings: warnings(), Plugins: names, Kubevirt: kubevirt.Status(), Leasedb: leasedb.Status()}
	}, gatherer)
}
