package model

import (
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
)

// bind finds the hosted cluster that an Infra serves: the one it names, else the
// one whose control-plane namespace it names, else the one with the domain typed
// into it. Where several fit it binds none, and says so: a guess could show one
// tenant another's control plane.
func (b *builder) bind(in *v1alpha1.Infra, ref Ref, typed string) *draft {
	meanwhile := ""
	if typed != "" {
		meanwhile = "; the names typed into the Infra are served meanwhile"
	}
	if want, ok := namedCluster(in); ok {
		found := b.byKey[want.Key()]
		if found == nil {
			b.found.add(ref, ReasonHostedClusterNotFound, "%s does not exist%s%s", want, b.namesake(in, want), meanwhile)
		}
		return found
	}
	for _, rule := range []struct {
		field, value string
		index        map[string][]*draft
	}{
		{"infraComponents.proxy.controlPlaneNamespace", controlPlaneNamespace(in), b.byNamespace},
		{"infraComponents.dns.clusterName and baseDomain", typed, b.byDomain},
	} {
		if rule.value == "" {
			continue
		}
		switch found := rule.index[rule.value]; {
		case len(found) == 1:
			return found[0]
		case len(found) > 1:
			b.found.add(ref, ReasonHostedClusterAmbiguous, "spec.%s %q fits %s: set spec.hostedClusterRef", rule.field, rule.value, refList(found))
			return nil
		}
	}
	b.found.add(ref, ReasonHostedClusterNotFound, "no HostedCluster fits: set spec.hostedClusterRef%s", meanwhile)
	return nil
}

// namesake says that a HostedCluster with the name that an Infra refers to is in the Infra's own namespace;
// empty where there is none. A reference without a namespace means the namespace clusters.
func (b *builder) namesake(in *v1alpha1.Infra, want Ref) string {
	other := b.byKey[in.Namespace+"/"+want.Name]
	if other == nil {
		return ""
	}
	field := "spec.hostedClusterRef"
	if !in.Spec.HostedClusterRef.IsSet() {
		field = "spec.appsIngress.hostedClusterRef"
	}
	return "; " + other.String() + " does: set " + field + ".namespace to " + in.Namespace
}

// namedCluster returns the HostedCluster that the Infra refers to by name.
func namedCluster(in *v1alpha1.Infra) (Ref, bool) {
	ref := in.Spec.NamedHostedCluster()
	key := ref.NamespacedName()
	return Ref{Kind: "HostedCluster", Namespace: key.Namespace, Name: key.Name}, ref.IsSet()
}

// ownerOf returns the oldest HostedCluster whose own domain this is. What an Infra
// spells out never takes a domain from the cluster that has it.
func (b *builder) ownerOf(domain string) *draft {
	owners := b.byDomain[domain]
	if len(owners) == 0 {
		return nil
	}
	return slices.MinFunc(owners, compareDrafts)
}

func refList(clusters []*draft) string {
	names := make([]string, len(clusters))
	for i, c := range clusters {
		names[i] = c.Key()
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// typedDomain is the cluster domain that an Infra spells out, "" for none.
func typedDomain(in *v1alpha1.Infra, ref Ref, found *problems) string {
	text := in.Spec.InfraComponents.DNS.ClusterDomain()
	if text == "" {
		return ""
	}
	domain, _ := publishable(ref, text, "spec.infraComponents.dns", found)
	return domain
}

// controlPlaneNamespace is the control plane's namespace that an Infra spells out, "" for none.
func controlPlaneNamespace(in *v1alpha1.Infra) string {
	if proxy := in.Spec.InfraComponents.Proxy; proxy != nil {
		return proxy.ControlPlaneNamespace
	}
	return ""
}

// clusterOfInfra stands in for a HostedCluster that does not exist yet.
func clusterOfInfra(in *v1alpha1.Infra, ref Ref) *draft {
	return &draft{Cluster: &Cluster{
		Ref:                   ref,
		Created:               in.CreationTimestamp.Time,
		ControlPlaneNamespace: controlPlaneNamespace(in),
	}, apiPort: portAPI, oauth: true}
}

// addTyped serves what an Infra spells out beside what the HostedCluster says.
func (d *draft) addTyped(in *v1alpha1.Infra, ref Ref, typed string, found *problems) {
	if typed != "" && !slices.Contains(d.Domains, typed) {
		if len(d.Domains) > 0 {
			found.add(ref, ReasonDomainMismatch, "spec.infraComponents.dns says %s, %s says %s: both are served", typed, d.Ref, d.Domains[0])
		}
		d.addDomain(typed)
		d.addAppsDomain("apps." + typed)
	}
	if apps := in.Spec.AppsIngress; apps.IsEnabled() && apps.BaseDomain != "" {
		domain := apps.BaseDomain
		if !strings.HasPrefix(domain, "apps.") {
			domain = "apps." + d.shortName(in) + "." + domain
		}
		if name, ok := publishable(ref, domain, "spec.appsIngress.baseDomain", found); ok && !slices.Contains(d.AppsDomains, name) {
			if len(d.AppsDomains) > 0 {
				found.add(ref, ReasonAppsDomainMismatch, "spec.appsIngress.baseDomain says %s, %s says %s: both are served", name, d.Ref, strings.Join(d.AppsDomains, " and "))
			}
			d.addAppsDomain(name)
		}
	}
}

// shortName is the <cluster> of "apps.<cluster>.<baseDomain>".
func (c *Cluster) shortName(in *v1alpha1.Infra) string {
	if dns := in.Spec.InfraComponents.DNS; dns != nil && dns.ClusterName != "" {
		return dns.ClusterName
	}
	return c.Name
}
