package model

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Egress is how a proxy resolves the names outside of the cluster that it forwards to.
type Egress struct {
	// Allow are networks to which names may resolve although they are not public, and Deny those to which no name may,
	// which take precedence. Both are sorted.
	Allow []netip.Prefix `json:"allow,omitempty"`
	Deny  []netip.Prefix `json:"deny,omitempty"`
	// Resolvers are the upstream resolvers; empty for the pod's resolvers.
	Resolvers []Resolver `json:"resolvers,omitempty"`
	// Parents are the names of parent proxies, which may resolve to any address.
	Parents []string `json:"parents,omitempty"`
}

// ParentProxy is a proxy that connects to egress names by CONNECT.
type ParentProxy struct {
	// Host is a name or an address.
	Host string `json:"host"`
	Port uint16 `json:"port"`
	// Authorized reports whether the proxy requires the credentials in the variable AuthorizationVariable of Envoy's environment.
	Authorized bool `json:"authorized,omitempty"`
}

// AuthorizationVariable is the environment variable of Envoy with the header Proxy-Authorization for a ParentProxy. It is not in
// Envoy's configuration, which operators can read.
const AuthorizationVariable = "OOOI_PARENT_PROXY_AUTHORIZATION"

// parseParentProxy returns the proxy of a field; nil for none.
func parseParentProxy(in *v1alpha1.ParentProxy) (*ParentProxy, error) {
	if in == nil {
		return nil, nil //nolint:nilnil // documented
	}
	wrong := errors.New("must be http://host:port, with credentials in secretRef") // the value may have a password
	u, err := url.Parse(in.URL)
	if err != nil {
		return nil, wrong
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 || u.Hostname() == "" || u.Scheme != "http" || u.User != nil {
		return nil, wrong
	}
	return &ParentProxy{Host: strings.ToLower(u.Hostname()), Port: uint16(port), Authorized: in.SecretRef != nil}, nil
}

// egressHTTPPort is the port of egress with HTTP requests instead of TLS.
const egressHTTPPort int32 = 80

// Timeouts of connections to names outside of the cluster. Many firewalls and proxies use the same idle timeout.
const (
	egressConnectTimeout = 10 * time.Second
	egressIdleTimeout    = time.Hour
)

// addAllEgress adds the egress of the Infra and of the ProxyServer. No name may resolve to an address of a VLAN: its hosts are
// other tenants, or the clients themselves.
func (p *proxyBuilder) addAllEgress() {
	var infra *Infra
	if p.out.Infra != nil {
		infra = p.infras[*p.out.Infra]
	}
	var cluster *Cluster
	if infra != nil && infra.Proxy != nil {
		cluster = infra.Cluster
		p.addEgress(infra.egress, infra.Ref, cluster)
	}
	p.addEgress(p.in.Spec.Egress, p.out.Ref, cluster)
	if e := p.out.Egress; e != nil {
		for _, i := range p.infras {
			e.Deny = append(e.Deny, i.CIDRs...)
		}
		e.Allow, e.Deny = sortedPrefixes(e.Allow), sortedPrefixes(e.Deny)
		if infra != nil {
			e.Resolvers = infra.resolvers
			if infra.Proxy != nil {
				p.addNTP(infra.egress, infra.Ref)
			}
		}
		p.addNTP(p.in.Spec.Egress, p.out.Ref)
	}
}

// addEgress adds the routes of egress.hosts in an Infra or a ProxyServer. Other routes on the port take precedence.
func (p *proxyBuilder) addEgress(in *v1alpha1.Egress, owner Ref, cluster *Cluster) {
	if in == nil {
		return
	}
	if p.out.Egress == nil {
		p.out.Egress = &Egress{}
	}
	e := p.out.Egress
	e.Allow = append(e.Allow, v1alpha1.ParsedCIDRs(in.AllowAddresses)...)
	e.Deny = append(e.Deny, v1alpha1.ParsedCIDRs(in.DenyAddresses)...)
	upstream := &Upstream{
		Name: "egress/" + strings.ToLower(owner.Kind) + "/" + owner.Key(), Owner: owner, Forward: true,
		ConnectTimeout: egressConnectTimeout, IdleTimeout: egressIdleTimeout,
	}
	var err error
	if upstream.Parent, err = parseParentProxy(in.ParentProxy); err != nil {
		p.found.add(owner, ReasonInvalidAddress, "spec.egress.parentProxy.url: %v; no name is forwarded", err)
		return
	}
	if upstream.Parent != nil {
		e.Parents = append(e.Parents, upstream.Parent.Host)
	}
	var ports []int32
	for _, port := range in.EffectivePorts() {
		l, http := p.listeners[port], port == egressHTTPPort
		switch user := podPorts[port]; {
		case user != "":
			p.found.add(owner, ReasonNameConflict, "spec.egress.ports: port %d is used in the proxy's own pod by %s; use another port", port, user)
		case http && upstream.Parent != nil:
			p.found.add(owner, ReasonNameConflict, "spec.egress.ports: port %d cannot be used with parentProxy", port)
		case l != nil && l.http != http:
			used := "TLS"
			if l.http {
				used = "HTTP"
			}
			p.found.add(owner, ReasonNameConflict, "spec.egress.ports: port %d is already used for %s; use another port", port, used)
		default:
			p.listener(port).http = http
			ports = append(ports, port)
		}
	}
	for i, host := range in.Hosts {
		source := fmt.Sprintf("spec.egress.hosts[%d]", i)
		name, err := egressName(string(host), in.AllowAll, cluster)
		if err != nil {
			p.found.add(owner, ReasonInvalidName, "%s: %v", source, err)
			continue
		}
		for _, port := range ports {
			if l := p.listener(port); l.routes[name].Host == "" {
				l.routes[name] = Route{Host: name, Upstream: upstream.Name, Owner: owner, Source: source}
				p.upstreams[upstream.Name] = upstream
			}
		}
	}
}

// egressNames returns the egress names of an Infra and its ProxyServers, which resolve to the proxy on the VLAN; nil for none.
func (b *builder) egressNames(i *Infra) []*RecordSet {
	if i.Proxy == nil {
		return nil
	}
	var sets []*RecordSet
	if i.egress != nil {
		sets = append(sets, i.egressRecords(i.egress, i.Ref, i.created))
	}
	for _, p := range b.proxyServersOf(i) {
		if p.Spec.Egress != nil {
			sets = append(sets, i.egressRecords(p.Spec.Egress, proxyServerRef(p), p.CreationTimestamp.Time))
		}
	}
	return sets
}

// egressRecords returns the records of egress in an Infra or a ProxyServer. A name below a wildcard has none: DNS
// would answer other names next to it as if they did not exist (RFC 4592, section 2.2.1).
func (i *Infra) egressRecords(in *v1alpha1.Egress, owner Ref, created time.Time) *RecordSet {
	fields := map[string]string{} // field path by valid name
	for n, host := range in.Hosts {
		if name, err := egressName(string(host), in.AllowAll, i.Cluster); err == nil && name != "*" { // the proxy reports invalid names
			fields[name] = fmt.Sprintf("spec.egress.hosts[%d]", n)
		}
	}
	set := &RecordSet{Owner: owner, kind: recordsEgress, created: created, cluster: i.Cluster}
	for name, field := range fields {
		_, parent, _ := strings.Cut(strings.TrimPrefix(name, "*."), ".")
		isBelow := false
		for at := range nameAndParents(parent) {
			isBelow = isBelow || fields["*."+at] != ""
		}
		if !isBelow {
			set.Records = appendAddressRecords(set.Records, name, i.Proxy.VLAN, &RecordSource{Object: owner, Field: field})
		}
	}
	slices.SortStableFunc(set.Records, compareRecords)
	return set
}

// CheckEgressHost returns an error if a name cannot be in egress.hosts of any Infra that does not allow all names.
func CheckEgressHost(host string) error {
	if host == "*" {
		return fmt.Errorf("%q allows every name; list the names", host)
	}
	name, err := egressName(host, false, nil)
	if err == nil && name != host {
		err = fmt.Errorf("%q must be %q", host, name)
	}
	return err
}

// egressName returns the name of a host in lower case. It returns an error for a wildcard of a public suffix, such as
// *.com or *.github.io, and for a name of the hosted cluster, which may be nil.
func egressName(host string, allowAll bool, cluster *Cluster) (string, error) {
	if host == "*" {
		if !allowAll {
			return "", fmt.Errorf("%q allows every name; set allowAll, or list the names", host)
		}
		return host, nil
	}
	name, err := cleanHost(host)
	if err != nil {
		return "", err
	}
	parent, wild := strings.CutPrefix(name, "*.")
	if label := parent[strings.LastIndexByte(parent, '.')+1:]; !wild && label == parent || label[0] < 'a' || label[0] > 'z' {
		return "", fmt.Errorf("%q must be a name with a domain, such as quay.io, not an address or a single label", host)
	}
	if strings.Contains(name, "_") {
		return "", fmt.Errorf("%q contains an underscore, which names of hosts do not have", host)
	}
	// This includes a domain all of whose children are public suffixes, such as compute.amazonaws.com.
	if wild && (isPublicSuffix(parent) || isPublicSuffix("a."+parent)) {
		return "", fmt.Errorf("%s allows names of different owners, because %s is a public suffix; list the domains below it", name, parent)
	}
	if cluster != nil && (cluster.owns(parent) || slices.ContainsFunc(cluster.AppsDomains, func(domain string) bool { return within(parent, domain) })) {
		return "", fmt.Errorf("%s is in a domain of %s: its names belong to the hosted cluster", name, cluster.Ref)
	}
	return name, nil
}

func isPublicSuffix(name string) bool {
	suffix, _ := publicsuffix.PublicSuffix(name)
	return suffix == name
}

// sortedPrefixes returns a sorted list without duplicates.
func sortedPrefixes(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare)
	return slices.Compact(list)
}
