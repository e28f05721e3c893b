package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/plugins/hcpviews"
)

// A prober probes other hosts on the VLAN, connects to the ports of its proxy, as VMs do, and observes the upstream resolvers
// and the Corefile. It is safe for concurrent use, except run.
type prober struct {
	monitor   *neighbours.Monitor
	ports     *neighbours.Ports
	upstreams upstreams
	corefile  corefile
	log       problem.Log
}

// newProber returns a prober.
func newProber() *prober {
	return &prober{monitor: &neighbours.Monitor{}, ports: &neighbours.Ports{}}
}

// run probes until ctx is done.
func (p *prober) run(ctx context.Context) {
	neighbours.Repeat(ctx, hcpviews.Logger(), func(ctx context.Context) error {
		p.corefile.observe(time.Now())
		err := errors.Join(p.upstreams.observe(prometheus.DefaultGatherer), p.probe(ctx, hcpviews.Snapshots()))
		p.problems() // for its side effect: it logs new problems
		return err
	})
}

func (p *prober) probe(ctx context.Context, snapshots []*model.Snapshot) error {
	var all []netip.Addr
	var ports []netip.AddrPort
	for _, s := range snapshots {
		for _, infra := range s.Infras {
			all = append(all, infra.Assigned()...)
			if infra.Cluster != nil {
				all = append(all, infra.Cluster.AppsAnswer().Addresses...)
			}
			ports = append(ports, proxyPorts(infra)...)
		}
	}
	if err := p.monitor.Probe(ctx, all); err != nil {
		return err
	}
	p.ports.Connect(ctx, p.monitor, ports)
	return nil
}
