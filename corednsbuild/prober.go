package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/plugins/hcpviews"
)

// A prober probes other hosts on the VLAN, and connects to the ports of its proxy, as VMs do. Doctor compares the results
// with those of xdsd and coredhcp. It also observes how fast upstream resolvers answer.
type prober struct {
	monitor   *neighbours.Monitor
	ports     *neighbours.Ports
	upstreams *answerTimes
}

// newProber returns a prober whose metrics are in the default registry, which plugin prometheus serves.
func newProber() *prober {
	p := &prober{neighbours.NewMonitor("coredns"), neighbours.NewPorts("coredns"), newAnswerTimes()}
	prometheus.MustRegister(p.monitor, p.ports, p.upstreams)
	return p
}

// run probes until ctx is done.
func (p *prober) run(ctx context.Context) {
	neighbours.Repeat(ctx, hcpviews.Logger(), func(ctx context.Context) error {
		return errors.Join(p.upstreams.observe(prometheus.DefaultGatherer), p.probe(ctx, hcpviews.Snapshots()))
	})
}

func (p *prober) probe(ctx context.Context, snapshots []*model.Snapshot) error {
	networks, err := neighbours.Networks()
	if err != nil {
		return err //nolint:wrapcheck // error of an internal package
	}
	var all []netip.Addr
	var ports []netip.AddrPort
	for _, s := range snapshots {
		for _, infra := range s.Infras {
			all = append(all, infra.Assigned()...)
			if infra.Cluster != nil {
				all = append(all, infra.Cluster.AppsAnswer().Addresses...)
				ports = append(ports, proxyPorts(infra)...)
			}
		}
	}
	answers, err := p.monitor.Probe(ctx, networks.OnOwnNetworks(all))
	if err != nil {
		return err //nolint:wrapcheck // error of an internal package
	}
	slices.SortFunc(ports, netip.AddrPort.Compare)
	p.ports.Connect(ctx, networks, slices.DeleteFunc(slices.Compact(ports), func(a netip.AddrPort) bool { return answers[a.Addr()] == nil }))
	return nil
}

// proxyPorts returns the VLAN addresses of the proxy with each port at which VMs connect to a name of the control plane.
func proxyPorts(infra *model.Infra) []netip.AddrPort {
	if infra.Proxy == nil {
		return nil
	}
	var list []netip.AddrPort
	for _, h := range infra.Cluster.Hostnames {
		for _, e := range h.Endpoints {
			for _, a := range infra.Proxy.VLAN {
				if e.Port > 0 && e.Port <= 1<<16-1 {
					list = append(list, netip.AddrPortFrom(a, uint16(e.Port)))
				}
			}
		}
	}
	return list
}
