package main

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/coredhcpbuild/internal/dhcp4"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/plugins/kubevirt"
	"github.com/densityops/oooi/plugins/leasedb"
)

// state is the content of /state. It contains no credentials.
type state struct {
	// Ready is set if VMs and leases are known, of any age.
	Ready bool `json:"ready"`
	// Waiting contains the reasons why the server is not ready.
	Waiting []string `json:"waiting,omitempty"`
	// Warnings describes faults that do not prevent replies.
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
	// Problems are the problems that /problems returns.
	Problems []problem.Problem `json:"problems"`
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

// warnings returns messages about faults that do not prevent replies.
func warnings() []string { return append(leasedb.Warnings(), kubevirt.Warnings()...) }

// httpHandler serves /healthz, /readyz, /metrics, /problems and /state. Once ctx is done, the server is not ready.
func (r *reporter) httpHandler(ctx context.Context, gatherer prometheus.Gatherer) http.Handler {
	return daemon.Handler(func() (bool, any) {
		waiting := readiness(ctx)
		return len(waiting) == 0, map[string][]string{"waiting": waiting, "warnings": warnings()}
	}, func() problem.Report { return r.report(ctx) }, func() any { return r.state(ctx) }, gatherer)
}

// state returns the content of /state.
func (r *reporter) state(ctx context.Context) *state {
	s := &state{
		Waiting: readiness(ctx), Warnings: warnings(), Plugins: map[string][]string{}, Kubevirt: kubevirt.Status(), Leasedb: leasedb.Status(),
		Selections: r.server.Selections(), Heard: r.server.Heard(), Offered: r.server.Offered(),
	}
	s.Ready = len(s.Waiting) == 0
	for _, p := range r.config.Server4.Plugins {
		s.Plugins["server4"] = append(s.Plugins["server4"], p.Name)
	}
	s.Problems = r.problems(s)
	return s
}
