package control

import (
	"context"
	"net/netip"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/neighbours"
	"github.com/densityops/oooi/internal/problem"
)

// probeServices connects to the cluster IPs of the Service of an Infra's proxy, at its first TCP port, if the proxy is ready.
// kube-proxy or the network plugin forwards these connections on the node of control.
func (r *infraReconciler) probeServices(ctx context.Context, f *infraFacts, x *index) {
	results := map[netip.AddrPort]error{}
	if port := proxyPort(f, x); port != 0 && f.proxy.ready() && f.infra.Proxy != nil && f.infra.Proxy.Service == f.infra.Key()+"-"+v1alpha1.ComponentProxy {
		for _, a := range f.infra.Proxy.ClusterIPs {
			at := netip.AddrPortFrom(a, port)
			if err := r.probe.connect(ctx, at); !neighbours.Local(err) {
				results[at] = err
			}
		}
	}
	if ctx.Err() == nil {
		r.faults.recordServices(f.infra.Key(), results)
	}
}

// recordServices replaces the results of connections to the Service of an Infra's proxy, by address.
func (f *Faults) recordServices(infra string, results map[netip.AddrPort]error) {
	var probed []string
	for address, err := range results {
		action := serviceAction(infra) + address.String() + " "
		probed = append(probed, action)
		f.record(action, err, problem.Failed(problem.ServiceUnreachable, model.ParseRef("Service", infra+"-proxy"), "cluster IP %s accepts no connections "+
			"from the node of control: kube-proxy or the network plugin does not forward them, and pods cannot reach the hosted control plane", address))
	}
	f.forget(serviceAction(infra), probed...)
}

func serviceAction(infra string) string { return "service " + infra + " " }

// proxyPort returns the first TCP port of the proxies of an Infra, 0 if there is none.
func proxyPort(f *infraFacts, x *index) uint16 {
	for _, name := range f.proxies {
		p := x.proxies[name]
		if p == nil {
			continue
		}
		for _, l := range p.Listeners {
			if !l.UDP {
				return uint16(l.Port) //nolint:gosec // a port
			}
		}
	}
	return 0
}
