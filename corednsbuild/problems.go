package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/audit"
	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/plugins/hcpviews"
)

// vlanDevice is the interface on the VLAN in pods that setup creates.
const vlanDevice = "net1"

// state is the content of /state. It contains no credentials.
type state struct {
	// Stores are the states of the stores of hosted clusters and Infras, one for each configuration of the plugins.
	Stores   []watch.Status    `json:"stores"`
	Problems []problem.Problem `json:"problems"`
}

// serve serves /problems and /state on l until ctx is done.
func (p *prober) serve(ctx context.Context, l net.Listener) error {
	handler := daemon.Handler(func() (bool, any) {
		stores, loaded := len(hcpviews.Statuses()), len(hcpviews.Snapshots())
		return stores > 0 && stores == loaded, map[string]int{"stores": stores, "loaded": loaded}
	}, p.report, func() any { return state{hcpviews.Statuses(), p.problems()} }, prometheus.DefaultGatherer)
	handler.Handle("GET "+audit.Path, daemon.Page(func() any { return hcpviews.Unlisted().Report() }))
	return daemon.ServeHTTP(ctx, l, handler, hcpviews.Logger())
}

// report returns the content of /problems.
func (p *prober) report() problem.Report {
	return problem.Report{Problems: p.problems(), VLAN: p.monitor.View(vlanDevice)}
}

// problems returns the problems that exist now.
func (p *prober) problems() []problem.Problem {
	now, snapshots := time.Now(), hcpviews.Snapshots()
	var list []problem.Problem
	for _, s := range hcpviews.Statuses() {
		list = append(list, s.Problems("coredns")...)
	}
	list = append(list, p.corefile.problems(now)...)
	list = append(list, upstreamProblems(p.upstreams.rounds(), dnsAddresses(snapshots))...)
	results := p.ports.Results()
	for _, s := range snapshots {
		for _, infra := range s.Infras {
			list = append(list, closedPorts(infra, results)...)
		}
	}
	return slices.CompactFunc(p.log.Update(now, list), func(a, b problem.Problem) bool { return problem.Compare(a, b) == 0 }) // stores may have the same Infra
}

// dnsAddresses returns this host's addresses, except loopback, and the VLAN addresses of all oooi DNS servers.
func dnsAddresses(snapshots []*model.Snapshot) []netip.Addr {
	var list []netip.Addr
	own, _ := net.InterfaceAddrs() // on error, only the others are known
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			list = append(list, p.Addr())
		}
	}
	for _, s := range snapshots {
		for _, infra := range s.Infras {
			list = append(list, infra.DNS...)
		}
	}
	return list
}
