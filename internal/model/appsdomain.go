package model

import (
	"slices"
	"strings"
)

// ownedDomain is an apps domain or the domain of a cluster.
type ownedDomain struct {
	cluster *Cluster
	name    string
}

// refuseAppsDomains decides which apps domains are not served in the view. A HostedCluster can set any domain as its
// apps domain, whose wildcard matches every name below it without an owner in the view. An apps domain outside of its
// cluster's own domains is therefore refused if it
//
//   - is in another cluster's domain, or contains one;
//   - contains its own cluster's domain, because other clusters' domains are likely to be siblings of that;
//   - contains a hostname or an apps domain of an older cluster, or is in an apps domain of an older cluster.
//
// The last rule compares ages, because hostnames and apps domains can be set freely: without it, the owner of a cluster
// could disable another cluster's apps by adding a hostname.
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
			if d := (ownedDomain{p.Cluster, name}); b.isOutside(d, domains) {
				outside[name] = append(outside[name], p.Cluster)
			}
		}
	}
	if len(outside) == 0 {
		return
	}
	for _, p := range ordered {
		b.refuseContaining(p.Cluster, outside)
	}
	b.refuseNested(ordered, outside)
}

// isOutside reports whether the rules for apps domains outside of their cluster's own domains apply further to d. As a
// side effect, it refuses d if d is in another cluster's domain, or contains its own cluster's domain; the result is
// then false.
func (b *viewBuilder) isOutside(d ownedDomain, domains map[string]*Cluster) bool {
	c := d.cluster
	for at := range nameAndParents(d.name) {
		if slices.Contains(c.Domains, at) {
			return false
		}
		// Inside the cluster's own domain, only the domain of an older cluster has precedence.
		if owner := domains[at]; owner != nil && (!c.owns(at) || compareAge(owner, c) < 0) {
			b.refuse(d, "it lies in %s, the domain of %s", at, owner.Ref)
			return false
		}
	}
	for _, domain := range c.Domains {
		if within(domain, d.name) {
			b.refuse(d, "it contains %s, the cluster's own domain, and its siblings", domain)
			return false
		}
	}
	return true
}

// refuseContaining refuses the apps domains that contain a domain or hostname of c.
func (b *viewBuilder) refuseContaining(c *Cluster, outside map[string][]*Cluster) {
	check := func(name, what string, refused func(*Cluster) bool) {
		for at := range nameAndParents(name) {
			for _, other := range outside[at] {
				if refused(other) {
					b.refuse(ownedDomain{other, at}, "it contains %s, %s of %s", name, what, c.Ref)
				}
			}
		}
	}
	for _, domain := range c.Domains {
		check(domain, "the domain", func(*Cluster) bool { return true })
	}
	checkHostname := func(name string) {
		if !c.owns(name) && !slices.ContainsFunc(c.AppsDomains, func(apps string) bool { return within(name, apps) }) {
			check(name, "a hostname", func(other *Cluster) bool { return compareAge(c, other) < 0 })
		}
	}
	for _, h := range c.Hostnames {
		checkHostname(h.Name)
	}
	for _, name := range c.AppsNames {
		checkHostname(name)
	}
}

// refuseNested refuses the apps domains that equal, contain or are in an apps domain of an older cluster.
func (b *viewBuilder) refuseNested(ordered []Publication, outside map[string][]*Cluster) {
	served := map[string]*Cluster{}
	servedByParent := map[string]ownedDomain{} // apps domains that are served, by each of their parents
	for _, p := range ordered {
		c := p.Cluster
		for _, name := range c.AppsDomains {
			d := ownedDomain{c, name}
			if !slices.Contains(outside[name], c) {
				continue
			}
			if nested, ok := servedByParent[name]; ok && nested.cluster != c {
				b.refuse(d, "it contains %s, an apps domain of %s", nested.name, nested.cluster.Ref)
			}
			for at := range nameAndParents(name) {
				if older := served[at]; older != nil && older != c {
					b.refuse(d, "%s is an apps domain of %s, which is older", at, older.Ref)
				}
			}
			if b.refused[d] || !p.Apps.Served {
				continue
			}
			served[name] = c
			for at := range nameAndParents(name) {
				if _, ok := servedByParent[at]; !ok && at != name {
					servedByParent[at] = d
				}
			}
		}
	}
}

// refuse records that an apps domain is not served, and reports it once.
func (b *viewBuilder) refuse(d ownedDomain, why string, args ...any) {
	if !b.refused[d] {
		b.refused[d] = true
		b.conflicts.add(d.cluster.Ref, ReasonNameConflict, "apps domain "+d.name+" is not served: "+why, args...)
	}
}

// isRefused reports whether a hostname only exists by convention, in an apps domain that is refused.
func (b *viewBuilder) isRefused(c *Cluster, h Hostname) bool {
	label, parent, _ := strings.Cut(h.Name, ".")
	return label == oauthHost && b.refused[ownedDomain{c, parent}] &&
		!slices.ContainsFunc(h.Endpoints, func(e Endpoint) bool { return e.Source != conventional })
}
