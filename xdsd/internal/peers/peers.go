// Package peers probes, from the pod of a proxy, the gateway, the other components and the apps addresses on its VLAN.
package peers

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
)

// New returns a Prober. snapshot returns the Infras, or nil if they are not known yet.
func New(snapshot func() *model.Snapshot, log *slog.Logger) *Prober {
	return &Prober{snapshot: snapshot, log: log}
}

// A Prober probes all peers periodically. Only IPv4 addresses on networks of this host are probed.
type Prober struct {
	snapshot func() *model.Snapshot
	log      *slog.Logger
	monitor  neighbours.Monitor
}

// Run probes until ctx is done.
func (p *Prober) Run(ctx context.Context) {
	neighbours.Repeat(ctx, p.log, func(ctx context.Context) error {
		if s := p.snapshot(); s != nil {
			return p.probe(ctx, s)
		}
		return nil
	})
}

// vlanDevice is the interface on the VLAN in pods that setup creates.
const vlanDevice = "net1"

// View returns what the pod sees on the VLAN; nil if it is on none.
func (p *Prober) View() *problem.VLAN {
	view := p.monitor.View(vlanDevice)
	if len(view.Interfaces) == 0 && len(view.Hosts) == 0 {
		return nil
	}
	return view
}

func (p *Prober) probe(ctx context.Context, s *model.Snapshot) error {
	networks, err := neighbours.Networks()
	if err != nil {
		return err
	}
	var all []netip.Addr
	for _, infra := range s.Infras {
		all = append(all, infra.Assigned()...)
	}
	for _, proxy := range s.ProxyServers {
		for _, u := range proxy.Upstreams {
			for _, a := range u.Addresses {
				all = append(all, a.Addr())
			}
		}
	}
	_, err = p.monitor.Probe(ctx, networks.OnOwnNetworks(all))
	return err
}
