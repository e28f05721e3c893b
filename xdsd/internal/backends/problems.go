package backends

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/internal/problem"
)

const (
	// minFault is how long all probes of a target must have failed in the same way: three probes. In that time, endpoints of
	// pods that end are removed from EndpointSlices.
	minFault = 25 * time.Second
	// expiryWarning is how long before its expiry a certificate is reported.
	expiryWarning = 7 * 24 * time.Hour
	// maxEvidence limits the endpoints in the evidence of a problem.
	maxEvidence = 8
	// noSourcePort is the error of a connection if all source ports of the pod are in use.
	noSourcePort = "cannot assign requested address"
)

// A cause is why an endpoint does not work. In message and remedy, words in capitals stand for details: see problem.
type cause struct {
	code            problem.Code
	message, remedy string
}

var (
	refusing = &cause{problem.BackendUnreachable, "connections to ENDPOINTS fail",
		"check that the pods listen on the targetPort of the Service; find the pod with: PODS"}
	silent = &cause{problem.BackendUnreachable, "connections to ENDPOINTS get no answer",
		"check the NetworkPolicies that select the backend's pods ('kubectl -n NAMESPACE get networkpolicies') and the filters between the nodes; an " +
			"endpoint that does not exist on any node does not answer either"}
	portless = &cause{problem.BackendUnreachable, "all source ports of the pod for connections to ENDPOINTS are in use",
		"limit the connections of clients (limits of the proxy), or raise net.ipv4.ip_local_port_range of the pod; 'kubectl oooi envoy clusters' shows the " +
			"connections"}
	misrouted = &cause{problem.BackendUnreachable,
		"packets to ENDPOINTS leave through DEVICE: the pod has a route to them over the VLAN, although they are not in its subnets",
		"check the routes in the NetworkAttachmentDefinitions of the pod"}
	appsClosed  = &cause{problem.BackendUnreachable, "connections to ENDPOINTS fail", appsRemedy}
	unannounced = &cause{problem.BackendUnreachable,
		"no host on the VLAN answers ARP requests for ENDPOINTS: MetalLB does not announce it, or the nodes of the hosted cluster are not connected to " +
			"this VLAN", "check the load balancer of the hosted cluster, such as MetalLB's speakers and its L2Advertisement, and the network of the nodes' VMs"}

	rejecting = &cause{problem.BackendHandshakeFailing, "TLS handshakes with ENDPOINTS fail, although TCP connections succeed",
		"find the pod with: PODS, and see its log"}
	hanging = &cause{problem.BackendHandshakeFailing,
		"TLS handshakes with ENDPOINTS time out, even in small packets, although TCP connections succeed: the process hangs",
		"find the pod with: PODS, and delete it"}
	lossy = &cause{problem.BackendHandshakeFailing,
		"TLS handshakes with ENDPOINTS complete in small packets only: large packets are lost, such as those with a certificate",
		"compare the MTU of the pod network on the proxy's and the endpoint's nodes, which you find with: PODS"}
	appsHanging = &cause{problem.BackendHandshakeFailing,
		"TLS handshakes with ENDPOINTS fail, although TCP connections succeed: the ingress router hangs, or a filter drops packets with data", appsRemedy}
	appsLossy = &cause{problem.BackendHandshakeFailing, lossy.message, "compare the MTU of the VLAN on all nodes and switches"}

	uncovered = &cause{problem.BackendCertificateInvalid, "the certificate of ENDPOINTS is not valid for NAME",
		"check the Service's selector and the server's certificates: spec.configuration.apiServer.servingCerts of the HostedCluster, or the backend's certificates"}
	expired = &cause{problem.BackendCertificateInvalid, "the certificate of ENDPOINTS has expired", renewRemedy}
	early   = &cause{problem.BackendCertificateInvalid, "the certificate of ENDPOINTS is not valid yet",
		"compare the clocks of the proxy's node and of the certificate's issuer"}
	expiring = &cause{problem.BackendCertificateInvalid, "the certificate of ENDPOINTS expires soon", renewRemedy}
)

const (
	appsRemedy  = "check that the ingress router of the hosted cluster runs, and that no filter on its nodes or on the VLAN drops connections from the proxy"
	renewRemedy = "renew the certificate; HyperShift renews control-plane certificates: if the Secret contains a newer one, find the pod with: PODS, and delete it"
)

// next returns the result after another probe.
func (r *result) next(b *probe.Backend, now time.Time) *result {
	next := &result{Backend: *b, target: r.target, at: now, since: now}
	switch {
	case !b.Connected:
		next.fault = problem.BackendUnreachable
	case b.Error != "":
		next.fault = problem.BackendHandshakeFailing
	}
	if next.fault == r.fault {
		next.since = r.since
	}
	return next
}

// Problems returns the problems of the endpoints of all backends. vlan is the pod's view of its VLAN; nil if it is
// not on one.
func (p *Prober) Problems(vlan *problem.VLAN) []problem.Problem {
	s := p.Store.Snapshot()
	if s == nil || s.ProxyServer(p.Proxy) == nil {
		return nil
	}
	j := judge{proxy: s.ProxyServer(p.Proxy), vlan: vlan, now: time.Now()}
	for _, infra := range s.Infras {
		j.networks = append(j.networks, infra.CIDRs...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j.empty = p.empty
	return j.problems(p.results)
}

// A judge finds problems in results.
type judge struct {
	proxy *model.ProxyServer
	// networks are the subnets of the VLAN, and vlan is the pod's view of it; nil if the pod is not on one.
	networks []netip.Prefix
	vlan     *problem.VLAN
	now      time.Time
	// empty contains the upstreams whose Service lacks a ready endpoint, by name, and since when.
	empty map[string]time.Time
}

// problems returns a problem for each backend and cause. A problem fails if no endpoint of the backend works.
func (j *judge) problems(results []*result) []problem.Problem {
	var list []problem.Problem
	for _, u := range j.proxy.Upstreams {
		if since, ok := j.empty[u.Name]; ok && j.now.Sub(since) >= minFault {
			service := model.ParseRef("Service", u.Service)
			list = append(list, problem.Failed(problem.BackendUnreachable, service, "backend %s lacks a ready endpoint", u.Name).
				WithRemedy("check that its selector and port fit pods that are ready: kubectl -n %s describe service %s", service.Namespace, service.Name))
		}
		endpoints, broken := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
		groups, order := map[*cause][]*result{}, []*cause{}
		for _, r := range results {
			if r.Upstream != u.Name { // or not probed yet
				continue
			}
			endpoints[r.Address] = true
			c := j.cause(u, r)
			if c == nil {
				continue
			}
			if c != expiring {
				broken[r.Address] = true
			}
			if groups[c] == nil {
				order = append(order, c)
			}
			if !slices.ContainsFunc(groups[c], func(other *result) bool { return other.Address == r.Address }) { // for another name
				groups[c] = append(groups[c], r)
			}
		}
		for _, c := range order {
			p := c.problem(u, groups[c], len(endpoints))
			if c == expiring || len(broken) < len(endpoints) {
				p.Severity = problem.Warn
			}
			list = append(list, p)
		}
	}
	return list
}

// cause returns why an endpoint of an upstream does not work, as far as a result shows it and it is certain; nil for no cause.
func (j *judge) cause(u *model.Upstream, r *result) *cause {
	certain := r.fault != "" && r.at.Sub(r.since) >= minFault
	switch {
	case certain && r.fault == problem.BackendUnreachable:
		return j.unreachable(u, r)
	case certain && r.fault == problem.BackendHandshakeFailing:
		return failedHandshake(u, r)
	case r.Error != "":
		return nil
	case !r.Covered && j.isDefined(u, r.Name):
		return uncovered
	case j.now.After(r.NotAfter):
		return expired
	case j.now.Before(r.NotBefore):
		return early
	case j.now.Add(expiryWarning).After(r.NotAfter):
		return expiring
	}
	return nil
}

func (j *judge) unreachable(u *model.Upstream, r *result) *cause {
	switch {
	case strings.Contains(r.Error, noSourcePort):
		return portless
	case j.isMisrouted(r):
		return misrouted
	case u.FromVLAN && j.isUnannounced(r):
		return unannounced
	case u.FromVLAN:
		return appsClosed
	case r.Refused:
		return refusing
	}
	return silent
}

func failedHandshake(u *model.Upstream, r *result) *cause {
	switch {
	case u.FromVLAN && r.SmallPackets:
		return appsLossy
	case u.FromVLAN:
		return appsHanging
	case r.SmallPackets:
		return lossy
	case r.TimedOut:
		return hanging
	}
	return rejecting
}

// isDefined reports whether an object defines a name that the proxy routes to an upstream.
func (j *judge) isDefined(u *model.Upstream, name string) bool {
	return slices.ContainsFunc(j.proxy.Listeners, func(l *model.Listener) bool {
		return slices.ContainsFunc(l.Routes, func(r model.Route) bool { return r.Host == name && r.Upstream == u.Name && !r.Conventional() })
	})
}

// isMisrouted reports whether packets to an endpoint outside of the VLAN's subnets leave through the interface on the VLAN.
func (j *judge) isMisrouted(r *result) bool {
	onVLAN := func(a netip.Addr) bool {
		return slices.ContainsFunc(j.networks, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return j.vlan != nil && !onVLAN(r.Address.Addr()) && slices.ContainsFunc(j.vlan.Interfaces, func(i problem.Interface) bool {
		return i.Name == r.Interface && slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return onVLAN(p.Addr()) })
	})
}

// isUnannounced reports whether no host on the VLAN answers for an address, although hosts answer for others.
func (j *judge) isUnannounced(r *result) bool {
	answers := func(h problem.Host) bool { return h.MAC != "" }
	return j.vlan != nil && slices.ContainsFunc(j.vlan.Hosts, answers) && slices.ContainsFunc(j.vlan.Hosts, func(h problem.Host) bool {
		return h.Address == r.Address.Addr() && !answers(h)
	})
}

// problem returns the problem of an upstream with a number of endpoints. The endpoints in results fail because of c.
func (c *cause) problem(u *model.Upstream, results []*result, endpoints int) problem.Problem {
	object, first := u.Owner, results[0]
	if u.Service != "" {
		object = model.ParseRef("Service", u.Service)
	}
	subject := fmt.Sprintf("%d of %d endpoints of backend %s", len(results), endpoints, u.Name)
	switch {
	case u.FromVLAN:
		subject = fmt.Sprintf("apps address %s", first.Address)
	case endpoints == 1:
		subject = fmt.Sprintf("endpoint %s of backend %s", first.Address, u.Name)
	}
	details := strings.NewReplacer("ENDPOINTS", subject, "NAMESPACE", object.Namespace, "NAME", first.Name, "DEVICE", first.Interface,
		"PODS", fmt.Sprintf("kubectl -n %s get pods -o wide --field-selector status.podIP=%s", object.Namespace, first.Address.Addr()))
	p := problem.Failed(c.code, object, "%s", details.Replace(c.message)).WithRemedy("%s", details.Replace(c.remedy))
	for _, r := range results[:min(len(results), maxEvidence)] {
		switch {
		case !r.Connected:
			p = p.WithEvidence(r.Error)
		case r.Error != "":
			p = p.WithEvidence(fmt.Sprintf("handshake with %s for %s: %s", r.Address, r.Name, r.Error))
		default:
			p = p.WithEvidence(fmt.Sprintf("%s: the certificate is valid for %s, from %s to %s, issued by %s", r.Address,
				strings.Join(r.Names, ", "), r.NotBefore.Format(time.RFC3339), r.NotAfter.Format(time.RFC3339), r.Issuer))
		}
	}
	return p
}
