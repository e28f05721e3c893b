package model

import (
	"iter"
	"slices"
	"strings"
)

// appsDomain is an apps domain as one cluster's.
type appsDomain struct {
	cluster *Cluster
	name    string
}

// refuseAppsDomains decides which apps domains are not served in the view. A
// HostedCluster may name any domain for its applications, and the wildcard in it
// answers for every name below that nobody has in the view. So an apps domain outside
// of its cluster's own domains is refused where it
//
//   - lies in another cluster's domain, or holds one;
//   - holds its own cluster's domain, for others' are likely to be beside that;
//   - holds a hostname or an apps domain of an older cluster, or lies in the latter.
//
// Age decides where the other name is made up as easily as the apps domain: else
// whoever adds a hostname to his cluster could end the applications of another.
func (b *viewBuilder) refuseAppsDomains(ordered []Publication) {
	domains := map[string]*Cluster{}
	for _, p := range ordered {
		for _, domain := range p.Cluster.Domains {
			if domains[domain] == nil {
				domains[domain] = p.Cluster
			}
		}
	}
	outside := map[string][]*Cluster{}
	for _, p := range ordered {
		if !p.ControlPlane.Served && !p.Apps.Served {
			continue
		}
		for _, name := range p.Cluster.AppsDomains {
			if d := (appsDomain{p.Cluster, name}); b.isOutside(d, domains) {
				outside[name] = append(outside[name], p.Cluster)
			}
		}
	}
	if len(outside) == 0 {
		return
	}
	for _, p := range ordered {
		b.refuseHolders(p.Cluster, outside)
	}
	b.refuseNested(ordered, outside)
}

// isOutside reports whether an apps domain lies outside of all cluster domains and
// holds none of its own cluster's. It refuses those that do neither this nor lie in
// their cluster's own domains.
func (b *viewBuilder) isOutside(d appsDomain, domains map[string]*Cluster) bool {
	c := d.cluster
	for at := range upwards(d.name) {
		if slices.Contains(c.Domains, at) {
			return false
		}
		// Only an older cluster's domain counts inside of the cluster's own.
		if holder := domains[at]; holder != nil && (!c.owns(at) || compareAge(holder, c) < 0) {
			b.refuse(d, "it lies in %s, the domain of %s", at, holder.Ref)
			return false
		}
	}
	for _, domain := range c.Domains {
		if within(domain, d.name) {
			b.refuse(d, "it holds %s, the cluster's own domain, and all that is beside that", domain)
			return false
		}
	}
	return true
}

// refuseHolders refuses the apps domains that hold a cluster's domain or hostname.
func (b *viewBuilder) refuseHolders(c *Cluster, outside map[string][]*Cluster) {
	check := func(name, what string, refused func(*Cluster) bool) {
		for at := range upwards(name) {
			for _, other := range outside[at] {
				if refused(other) {
					b.refuse(appsDomain{other, at}, "it holds %s, %s of %s", name, what, c.Ref)
				}
			}
		}
	}
	for _, domain := range c.Domains {
		check(domain, "the domain", func(*Cluster) bool { return true })
	}
	for _, h := range c.Hostnames {
		if !c.owns(h.Name) && !slices.ContainsFunc(c.AppsDomains, func(apps string) bool { return within(h.Name, apps) }) {
			check(h.Name, "a hostname", func(other *Cluster) bool { return compareAge(c, other) < 0 })
		}
	}
}

// refuseNested refuses the apps domains that an older cluster has, that hold one of
// an older cluster, or that lie in one.
func (b *viewBuilder) refuseNested(ordered []Publication, outside map[string][]*Cluster) {
	served := map[string]*Cluster{}
	above := map[string]appsDomain{} // what is served, by each of its parents
	for _, p := range ordered {
		c := p.Cluster
		for _, name := range c.AppsDomains {
			d := appsDomain{c, name}
			if !slices.Contains(outside[name], c) {
				continue
			}
			if held, ok := above[name]; ok && held.cluster != c {
				b.refuse(d, "it holds %s, an apps domain of %s", held.name, held.cluster.Ref)
			}
			for at := range upwards(name) {
				if older := served[at]; older != nil && older != c {
					b.refuse(d, "%s is an apps domain of %s, which is older", at, older.Ref)
				}
			}
			if b.refused[d] || !p.Apps.Served {
				continue
			}
			served[name] = c
			for at := range upwards(name) {
				if _, ok := above[at]; !ok && at != name {
					above[at] = d
				}
			}
		}
	}
}

// refuse notes, once, that an apps domain is not served.
func (b *viewBuilder) refuse(d appsDomain, why string, args ...any) {
	if !b.refused[d] {
		b.refused[d] = true
		b.lost.add(d.cluster.Ref, ReasonNameConflict, "apps domain "+d.name+" is not served: "+why, args...)
	}
}

// isRefused reports whether a hostname is there only by convention, in an apps
// domain that is refused.
func (b *viewBuilder) isRefused(c *Cluster, h Hostname) bool {
	label, parent, _ := strings.Cut(h.Name, ".")
	return label == oauthHost && b.refused[appsDomain{c, parent}] &&
		!slices.ContainsFunc(h.Endpoints, func(e Endpoint) bool { return e.Source != conventional })
}

// upwards yields a name and all its parents.
func upwards(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name != "" && yield(name) {
			_, name, _ = strings.Cut(name, ".")
		}
	}
}
