package resolve

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Options returns the model options of Compute. Objects from manifests must be read with these options.
func Options() model.Options {
	return model.Options{Apps: &model.AppsOptions{}, Proxies: true, Backends: true, Leases: []string{model.AllLeases}}
}

// A resolver resolves one name from a snapshot and its objects.
type resolver struct {
	*model.Snapshot

	objects *model.Objects
	name    string
	aliases int // number of aliases that lead to name
}

// Compute computes the responses to a query from objects. q must pass Check, and q.Name must be in the form that ParseName
// returns. The Report has the pod view first, then the views of VLANs. Compute returns an error if no Infra is on q.VLAN.
func Compute(objects *model.Objects, q Query) (*Report, error) {
	r := &resolver{Snapshot: model.Build(objects, Options()), objects: objects, name: q.Name}
	vlans, pod, err := q.selectViews(r.Snapshot)
	if err != nil {
		return nil, err
	}
	out := &Report{TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Resolution"}, Name: q.Name}
	if pod {
		out.Views = append(out.Views, r.resolveView(r.Pod(), View{View: Pod}))
	}
	for _, v := range vlans {
		out.Views = append(out.Views, r.resolveView(v.View, View{View: VLAN, VLAN: v.Name, CIDRs: v.CIDRs}))
	}
	out.Problems = r.problems(out.Views)
	return out, nil
}

// OnVLAN returns the response to VMs on the network of a NetworkAttachmentDefinition, "namespace/name"; nil if no Infra is on it. The
// snapshot must be built with Options or more. Only Infras in objects are required; without others, fewer sources are known.
func OnVLAN(snapshot *model.Snapshot, objects *model.Objects, name, nad string) *View {
	at := slices.IndexFunc(snapshot.VLANs, func(v *model.VLAN) bool { return v.Uses(nad) })
	if at < 0 {
		return nil
	}
	v := snapshot.VLANs[at]
	answer := (&resolver{Snapshot: snapshot, objects: objects, name: name}).resolveView(v.View, View{View: VLAN, VLAN: v.Name, CIDRs: v.CIDRs})
	return &answer
}

// resolveView completes out with the response in a view.
func (r *resolver) resolveView(v *model.View, out View) View {
	at, exact := newNameTree(v).find(r.name)
	switch {
	case at == nil:
		r.unserved(&out)
	case strings.HasPrefix(r.name, model.ACMEChallenge):
		out.forward("certificate authorities query public DNS for challenges (RFC 8555)")
	case exact && at.name != nil:
		r.resolveControlPlane(at.name, &out)
	case exact && len(at.records) > 0:
		r.resolveRecords(v, at.records, &out)
	case !exact && at.wildcard != nil:
		r.resolveRecords(v, at.wildcard.records, &out)
	case at.open && at.app == nil:
		out.forward("no object of this view defines the name, which is outside of hosted clusters' domains")
	case at.forwarded, !exact && at.app != nil && at.app.Subtree && !at.app.Served:
		out.Cluster = at.app.Cluster
		out.forward("the name is in an apps domain, but no Infra of this view has an apps address (spec.appsIngress)")
	case at.app != nil && exact != at.app.Subtree:
		r.resolveApp(at.app, &out)
	case exact:
		out.Result, out.Why = NoAddress, "the name is a domain without an address"
		out.Cluster = r.owner(v, at)
	default:
		out.Result, out.Why = NotFound, "DNS is authoritative for zone "+at.zone+", in which the name does not exist"
		out.Cluster = r.owner(v, at)
	}
	if out.Result == PassedOn && out.View == VLAN {
		r.resolveOther(&out)
	}
	if out.Result == PassedOn {
		out.Upstream = r.upstreamResolvers(&out)
	}
	return out
}

// resolveOther completes the response to a VM for a name that the view lacks, if DNS on the VLAN does not forward the name.
func (r *resolver) resolveOther(out *View) {
	if within := "." + r.name; strings.HasSuffix(within, ".cluster.local") {
		out.Result, out.Why = Refused, "VMs do not resolve names of Services of the management cluster"
		return
	}
	for _, i := range r.Infras {
		spec := r.infraObject(i.Ref).Spec
		if dns := spec.InfraComponents.DNS; i.VLAN != out.VLAN || !dns.IsEnabled() {
			continue
		} else if spec.Egress.AllowsAll() && i.Proxy != nil {
			out.Result, out.Why, out.Addresses = Answered, "", i.Proxy.VLAN
			out.NameFrom = []Source{{Object: i.Ref, Field: "spec.egress.hosts"}}
			out.AddressFrom = []Source{{Object: i.Ref, Field: "spec.infraComponents.proxy"}}
			return
		} else if dns.Forward == v1alpha1.DNSForwardDeny {
			out.Result, out.Why = NotFound, "spec.infraComponents.dns.forward of "+i.String()+" is Deny"
			return
		}
	}
}

// forward sets the result to PassedOn.
func (v *View) forward(why string) { v.Result, v.Why = PassedOn, why }

// unserved completes the response for a name that a view lacks: no hosted cluster has the name, or the cluster is not
// served.
func (r *resolver) unserved(out *View) {
	out.forward("the name belongs to no hosted cluster of this view")
	for _, c := range r.Clusters {
		serving := r.servingInfras(c.Ref, out)
		if !r.ownsName(c) || out.View == VLAN && len(serving) == 0 {
			continue
		}
		ref := c.Ref
		out.Cluster = &ref
		switch {
		case len(serving) == 0:
			out.Why = "no Infra serves the cluster; deploy one with 'kubectl oooi setup'"
		case !slices.ContainsFunc(serving, func(i *model.Infra) bool { return i.Proxy != nil }):
			out.Why = "no Infra of the cluster has a proxy (spec.infraComponents.proxy)"
		default:
			out.Why = "the name is not served in this view"
		}
		return
	}
}

// ownsName reports whether the name is a hostname of a cluster, or in one of its domains.
func (r *resolver) ownsName(c *model.Cluster) bool {
	return slices.ContainsFunc(c.Hostnames, func(h model.Hostname) bool { return h.Name == r.name }) ||
		slices.ContainsFunc(slices.Concat(c.Domains, c.AppsDomains), func(domain string) bool {
			return r.name == domain || strings.HasSuffix(r.name, "."+domain)
		})
}

// owner returns the cluster to which the zone of a node belongs; nil for none.
func (r *resolver) owner(v *model.View, at *node) *model.Ref {
	for _, z := range v.Zones {
		if z.Origin == at.zone {
			return z.Cluster
		}
	}
	for i := range v.Apps {
		if v.Apps[i].Name == at.zone {
			return v.Apps[i].Cluster
		}
	}
	return nil
}

// resolveControlPlane completes the response for a control-plane name.
func (r *resolver) resolveControlPlane(name *model.Name, out *View) {
	ref := name.Cluster
	out.Cluster, out.Addresses = &ref, name.Addresses
	c := r.cluster(ref)
	at := slices.IndexFunc(c.Hostnames, func(h model.Hostname) bool { return h.Name == r.name })
	if at < 0 { // the name of the DNS servers, in the zone's NS record
		out.NameFrom = []Source{{Object: ref, Field: "the name server"}}
		out.AddressFrom = r.dnsAddressSources(ref, out)
	} else {
		for _, e := range c.Hostnames[at].Endpoints {
			out.NameFrom = appendNew(out.NameFrom, nameSource(c, e))
		}
		out.AddressFrom = r.proxyAddressSources(ref, out)
		if out.View == Pod && len(out.AddressFrom) > 1 {
			out.Why = "several Infras serve the cluster; each Infra's DNS returns the address of the Infra's proxy"
		}
		out.Ports = r.ports(ref, out)
	}
	out.setResult("the address of the name is not known yet")
}

// resolveApp completes the response for an apps name.
func (r *resolver) resolveApp(app *model.App, out *View) {
	out.Cluster, out.Addresses = app.Cluster, app.Addresses
	out.NameFrom = []Source{r.appSource(app)}
	c := r.cluster(*app.Cluster)
	if out.View == Pod {
		out.AddressFrom = r.proxyAddressSources(c.Ref, out)
		out.Ports = r.ports(c.Ref, out)
	} else if c.Apps != nil {
		out.AddressFrom = r.appsAddressSources(c.Apps)
	}
	if c.Apps != nil && len(c.Apps.Addresses) > 0 {
		out.setResult("the proxy's address is not known yet")
	} else {
		out.setResult("the apps address is not known yet; run 'kubectl oooi status' to see why")
	}
}

// resolveRecords completes the response for a name with records; for an alias, with the response for the target.
func (r *resolver) resolveRecords(v *model.View, records []*model.Record, out *View) {
	for _, record := range records {
		out.NameFrom = appendNew(out.NameFrom, Source{Object: record.From.Object, Field: record.From.Field})
		out.Records = append(out.Records, newRecord(record))
		out.Addresses = append(out.Addresses, record.Addresses...)
	}
	slices.SortFunc(out.Addresses, netip.Addr.Compare)
	out.Result = Answered
	alias := records[0]
	if alias.Type != v1alpha1.DNSRecordCNAME {
		return
	}
	if r.aliases == maxAliases {
		out.Result, out.Why = Failed, "the aliases are a loop, or a chain of more than 8"
		return
	}
	target := *r
	target.name, target.aliases = alias.Values[0], r.aliases+1
	answer := target.resolveView(v, View{View: out.View, VLAN: out.VLAN, CIDRs: out.CIDRs})
	out.Result, out.Why = answer.Result, answer.Why
	if answer.Result == Failed {
		return
	}
	out.Addresses, out.Cluster, out.Upstream, out.Ports = answer.Addresses, answer.Cluster, answer.Upstream, answer.Ports
	out.AddressFrom = slices.Concat(answer.NameFrom, answer.AddressFrom)
	out.Records = append(out.Records, answer.Records...)
}

// maxAliases is the length of the longest chain of CNAME records that DNS resolves.
const maxAliases = 8

// setResult sets the result to Answered or, without addresses, to NoAddress with a reason.
func (v *View) setResult(reason string) {
	v.Result = Answered
	if len(v.Addresses) == 0 {
		v.Result, v.Why = NoAddress, reason
	}
}

// cluster returns the cluster of a name, which must be in the snapshot.
func (r *resolver) cluster(ref model.Ref) *model.Cluster {
	at := slices.IndexFunc(r.Clusters, func(c *model.Cluster) bool { return c.Ref == ref })
	if at < 0 {
		return &model.Cluster{Ref: ref}
	}
	return r.Clusters[at]
}

// servingInfras returns the Infras that serve a cluster in a view.
func (r *resolver) servingInfras(ref model.Ref, out *View) []*model.Infra {
	var list []*model.Infra
	for _, i := range r.Infras {
		if i.Serves != nil && *i.Serves == ref && (out.View == Pod || i.VLAN == out.VLAN) {
			list = append(list, i)
		}
	}
	return list
}

// infraObject returns the object of an Infra, or an empty one if it does not exist.
func (r *resolver) infraObject(ref model.Ref) *v1alpha1.Infra {
	for _, i := range r.objects.Infras {
		if i.Namespace == ref.Namespace && i.Name == ref.Name {
			return i
		}
	}
	return &v1alpha1.Infra{}
}

// upstreamResolvers returns the resolvers to which DNS forwards the name, sorted; none for the node's resolvers.
func (r *resolver) upstreamResolvers(out *View) []string {
	var list []string
	for _, i := range r.Infras {
		answers := out.View == VLAN && i.VLAN == out.VLAN || out.Cluster != nil && i.Serves != nil && *i.Serves == *out.Cluster
		if spec := r.infraObject(i.Ref).Spec; answers && spec.InfraComponents.DNS.IsEnabled() {
			list = append(list, spec.NetworkConfig.DNSServers...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// problems returns, sorted, the problems that mention the name, problems of clusters and Infras without a response, and objects
// that cannot be decoded, because they may define the name.
func (r *resolver) problems(views []View) []model.Problem {
	unanswered := map[model.Ref]bool{}
	for i := range views {
		if v := &views[i]; v.Cluster != nil && v.Result != Answered {
			unanswered[*v.Cluster] = true
			for _, infra := range r.servingInfras(*v.Cluster, v) {
				unanswered[infra.Ref] = true
			}
		}
	}
	var list []model.Problem
	for _, p := range r.Problems {
		if unanswered[p.Object] || p.Reason == model.ReasonUndecodable || strings.Contains(p.Message, r.name) {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b model.Problem) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// appendNew appends a source that is not in the list.
func appendNew(list []Source, s Source) []Source {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
