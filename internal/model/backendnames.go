package model

import (
	"fmt"
	"slices"

	"github.com/densityops/oooi/api/v1alpha1"
)

// backendNames returns the names of the backends of an Infra's ProxyServers, which resolve to the proxy on the VLAN; nil for none.
func (b *builder) backendNames(i *Infra) []*RecordSet {
	if i.Proxy == nil {
		return nil
	}
	var sets []*RecordSet
	for _, p := range b.proxyServersOf(i) {
		if len(p.Spec.Backends) == 0 {
			continue
		}
		owner := proxyServerRef(p)
		set := &RecordSet{Owner: owner, kind: recordsBackend, created: p.CreationTimestamp.Time, cluster: i.Cluster}
		for n := range p.Spec.Backends {
			backend := &p.Spec.Backends[n]
			from := &RecordSource{Object: owner, Field: fmt.Sprintf("spec.backends[%d] %s", n, backend.Name)}
			for _, host := range append([]string{backend.Hostname}, backend.AlternateHostnames...) {
				if name, err := recordName(host); err == nil { // otherwise the proxy lacks a route for it
					set.Records = appendAddressRecords(set.Records, name, i.Proxy.VLAN, from)
				}
			}
		}
		slices.SortStableFunc(set.Records, compareRecords)
		set.Records = slices.CompactFunc(set.Records, func(a, b *Record) bool { return compareRecords(a, b) == 0 }) // several ports
		sets = append(sets, set)
	}
	return sets
}

func proxyServerRef(p *v1alpha1.ProxyServer) Ref {
	return Ref{Kind: "ProxyServer", Namespace: p.Namespace, Name: p.Name}
}

// proxyServersOf returns the ProxyServers of an Infra whose names DNS serves.
func (b *builder) proxyServersOf(i *Infra) []*v1alpha1.ProxyServer {
	if !b.options.Backends {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.proxies), func(p *v1alpha1.ProxyServer) bool {
		return p.Namespace != i.Namespace || p.Spec.InfraRef == nil || p.Spec.InfraRef.Name != i.Name
	})
}
