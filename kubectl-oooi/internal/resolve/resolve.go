package resolve

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Options are those that the snapshot to ask is made with.
func Options() model.Options { return model.Options{Apps: &model.AppsOptions{}, Proxies: true} }

// resolver knows what a snapshot was made of.
type resolver struct {
	*model.Snapshot

	objects *model.Objects
	name    string
}

// Ask answers a query out of objects.
func Ask(objects *model.Objects, q Query) (*Report, error) {
	r := &resolver{Snapshot: model.Build(objects, Options()), objects: objects, name: q.Name}
	vlans, pod, err := q.wanted(r.Snapshot)
	if err != nil {
		return nil, err
	}
	out := &Report{TypeMeta: metav1.TypeMeta{APIVersion: output.APIVersion, Kind: "Resolution"}, Name: q.Name}
	if pod {
		out.Views = append(out.Views, r.view(r.Pod, View{View: Pod}))
	}
	for _, v := range vlans {
		out.Views = append(out.Views, r.view(v.View, View{View: VLAN, VLAN: v.Name, CIDRs: v.CIDRs}))
	}
	out.Problems = r.problems(out.Views)
	return out, nil
}

// view completes what a view answers.
func (r *resolver) view(v *model.View, out View) View {
	at, exact := namesOf(v).find(r.name)
	switch {
	case at == nil:
		r.unserved(&out)
	case exact && at.name != nil:
		r.controlPlane(at.name, &out)
	case at.foreign, !exact && at.app != nil && at.app.Subtree && !at.app.Served:
		out.Cluster = at.app.Cluster
		out.pass("it is an application's, and no Infra of this view has the apps address (spec.appsIngress)")
	case at.app != nil && exact != at.app.Subtree:
		r.application(at.app, &out)
	case exact:
		out.Result, out.Why = NoAddress, "it is a domain, and has no address itself"
		out.Cluster = r.owner(v, at)
	default:
		out.Result, out.Why = NotFound, "zone "+at.zone+" is answered for, and it is not in there"
		out.Cluster = r.owner(v, at)
	}
	if out.Result == PassedOn {
		out.Upstream = r.upstream(&out)
	}
	return out
}

func (v *View) pass(why string) { v.Result, v.Why = PassedOn, why }

// unserved says why a view has nothing about a name: nobody has it, or who has it is not served.
func (r *resolver) unserved(out *View) {
	out.pass("no hosted cluster of this view has the name")
	for _, c := range r.Clusters {
		serving := r.serving(c.Ref, out)
		if !r.within(c) || out.View == VLAN && len(serving) == 0 {
			continue
		}
		ref := c.Ref
		out.Cluster = &ref
		switch {
		case len(serving) == 0:
			out.Why = "no Infra serves the cluster: 'kubectl oooi setup' makes one work"
		case !slices.ContainsFunc(serving, func(i *model.Infra) bool { return i.Proxy != nil }):
			out.Why = "no Infra of the cluster has a proxy (spec.infraComponents.proxy)"
		default:
			out.Why = "the name is not served in this view"
		}
		return
	}
}

// within reports whether the name is the cluster's, or in a domain of its.
func (r *resolver) within(c *model.Cluster) bool {
	return slices.ContainsFunc(c.Hostnames, func(h model.Hostname) bool { return h.Name == r.name }) ||
		slices.ContainsFunc(slices.Concat(c.Domains, c.AppsDomains), func(domain string) bool {
			return r.name == domain || strings.HasSuffix(r.name, "."+domain)
		})
}

// owner is whose zone a name is in.
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

// controlPlane is the answer for a name of a control plane.
func (r *resolver) controlPlane(name *model.Name, out *View) {
	ref := name.Cluster
	out.Cluster, out.Addresses = &ref, name.Addresses
	c := r.cluster(ref)
	at := slices.IndexFunc(c.Hostnames, func(h model.Hostname) bool { return h.Name == r.name })
	if at < 0 { // that of the DNS servers, which the zone's NS record has
		out.NameFrom = []Source{{Object: ref, Field: "the name server"}}
		out.AddressFrom = r.servers(ref, out)
	} else {
		for _, e := range c.Hostnames[at].Endpoints {
			out.NameFrom = appendNew(out.NameFrom, sourceOf(c, e))
		}
		out.AddressFrom = r.proxies(ref, out)
		out.Ports = r.ports(ref, out)
	}
	out.judge("its address is not known yet")
}

// application is the answer for a name of an application.
func (r *resolver) application(app *model.App, out *View) {
	out.Cluster, out.Addresses = app.Cluster, app.Addresses
	out.NameFrom = []Source{r.appSource(app)}
	c := r.cluster(*app.Cluster)
	if out.View == Pod {
		out.AddressFrom = r.proxies(c.Ref, out)
		out.Ports = r.ports(c.Ref, out)
	} else if c.Apps != nil {
		out.AddressFrom = r.loadBalancer(c.Apps)
	}
	if c.Apps != nil && len(c.Apps.Addresses) > 0 {
		out.judge("the proxy's address is not known yet")
	} else {
		out.judge("the applications have no address yet: see 'kubectl oooi status'")
	}
}

// judge sets the result by the addresses.
func (v *View) judge(without string) {
	v.Result = Answered
	if len(v.Addresses) == 0 {
		v.Result, v.Why = NoAddress, without
	}
}

// cluster is the one of a name, which is there since the name is.
func (r *resolver) cluster(ref model.Ref) *model.Cluster {
	at := slices.IndexFunc(r.Clusters, func(c *model.Cluster) bool { return c.Ref == ref })
	if at < 0 {
		return &model.Cluster{Ref: ref}
	}
	return r.Clusters[at]
}

// serving are the Infras that serve a cluster in a view.
func (r *resolver) serving(ref model.Ref, out *View) []*model.Infra {
	var list []*model.Infra
	for _, i := range r.Infras {
		if i.Serves != nil && *i.Serves == ref && (out.View == Pod || i.VLAN == out.VLAN) {
			list = append(list, i)
		}
	}
	return list
}

// spec is an Infra as it is written.
func (r *resolver) spec(ref model.Ref) *v1alpha1.Infra {
	for _, i := range r.objects.Infras {
		if i.Namespace == ref.Namespace && i.Name == ref.Name {
			return i
		}
	}
	return &v1alpha1.Infra{}
}

// upstream are the resolvers that our DNS passes the name on to.
func (r *resolver) upstream(out *View) []string {
	var list []string
	for _, i := range r.Infras {
		ours := out.View == VLAN && i.VLAN == out.VLAN || out.Cluster != nil && i.Serves != nil && *i.Serves == *out.Cluster
		if spec := r.spec(i.Ref).Spec; ours && spec.InfraComponents.DNS.IsEnabled() {
			list = append(list, spec.NetworkConfig.DNSServers...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// problems are those that name the name, those of whom there is no answer for, and objects that
// cannot be read, which may be anybody's.
func (r *resolver) problems(views []View) []model.Problem {
	concerned := map[model.Ref]bool{}
	for i := range views {
		if v := &views[i]; v.Cluster != nil && v.Result != Answered {
			concerned[*v.Cluster] = true
			for _, infra := range r.serving(*v.Cluster, v) {
				concerned[infra.Ref] = true
			}
		}
	}
	var list []model.Problem
	for _, p := range r.Problems {
		if concerned[p.Object] || p.Reason == model.ReasonUndecodable || strings.Contains(p.Message, r.name) {
			list = append(list, p)
		}
	}
	slices.SortStableFunc(list, func(a, b model.Problem) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

func appendNew(list []Source, s Source) []Source {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
