package model

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
)

// ntpIdleTimeout ends a session of NTP, which is one request and its response. Many clients send each request from another port, so
// that sessions are not used again.
const ntpIdleTimeout = 5 * time.Second

// ntpHost is the host of the route, which selects nothing, and the last part of the upstream's name.
const ntpHost = "ntp"

// addNTP adds the route to the NTP servers of an Infra or a ProxyServer, after the policy for their addresses is complete. Another
// route of the UDP port takes precedence.
func (p *proxyBuilder) addNTP(in *v1alpha1.Egress, owner Ref) {
	if in == nil || len(in.NTP) == 0 {
		return
	}
	const source = "spec.egress.ntp"
	if other := p.udp[v1alpha1.NTPPort]; other.Upstream != "" {
		p.found.add(owner, ReasonNameConflict, "%s: UDP port %d is already routed to %s (%s of %s); the NTP servers are ignored",
			source, v1alpha1.NTPPort, other.Upstream, other.Source, other.Owner)
		return
	}
	u := &Upstream{
		Name: "egress/" + strings.ToLower(owner.Kind) + "/" + owner.Key() + "/" + ntpHost, Owner: owner, Forward: true, UDP: true,
		ConnectTimeout: egressConnectTimeout, IdleTimeout: ntpIdleTimeout, MaxConnections: v1alpha1.DefaultUDPSessions,
	}
	for i, text := range in.NTP {
		server, reason, err := p.out.Egress.ntpServer(string(text))
		if err != nil {
			p.found.add(owner, reason, "%s[%d]: %v; the NTP server is ignored", source, i, err)
			continue
		}
		u.Servers = append(u.Servers, server)
	}
	if len(u.Servers) > 0 {
		p.upstreams[u.Name] = u
		p.udp[v1alpha1.NTPPort] = Route{Host: ntpHost, Upstream: u.Name, Owner: owner, Source: source}
	}
}

// ntpServer returns a name in lower case, or a permitted address.
func (e *Egress) ntpServer(text string) (string, Reason, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		if address.Zone() != "" || !e.Permits(address) {
			return "", ReasonInvalidAddress, fmt.Errorf("%s is not permitted; add its network to egress.allowAddresses if clients may reach it", text)
		}
		return address.Unmap().String(), "", nil
	}
	name, err := cleanName(text)
	if err != nil {
		return "", ReasonInvalidName, err
	}
	return name, "", nil
}
