package resolve

import (
	"slices"
	"strings"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/routes"
)

// nameSource returns the field that defines the name of an endpoint.
func nameSource(c *model.Cluster, e model.Endpoint) Source {
	if route, ok := strings.CutPrefix(e.Source, "Route "); ok {
		return Source{Object: model.Ref{Kind: "Route", Namespace: c.ControlPlaneNamespace, Name: route}, Field: "spec.host"}
	}
	return Source{Object: c.Ref, Field: e.Source}
}

// appSource returns the field that defines the apps domain of a name.
func (r *resolver) appSource(app *model.App) Source {
	for _, hc := range r.objects.HostedClusters {
		if hc.Namespace != app.Cluster.Namespace || hc.Name != app.Cluster.Name || hc.Spec.Configuration == nil || hc.Spec.Configuration.Ingress == nil {
			continue
		}
		switch ingress := hc.Spec.Configuration.Ingress; app.Name {
		case ingress.AppsDomain:
			return Source{Object: *app.Cluster, Field: "spec.configuration.ingress.appsDomain"}
		case ingress.Domain:
			return Source{Object: *app.Cluster, Field: "spec.configuration.ingress.domain"}
		default:
			for _, route := range ingress.ComponentRoutes {
				if strings.EqualFold(strings.TrimSuffix(route.Hostname, "."), app.Name) {
					return Source{Object: *app.Cluster, Field: route.Field()}
				}
			}
		}
	}
	if !app.Subtree {
		return Source{Object: *app.Cluster, Field: "convention"}
	}
	c := r.cluster(*app.Cluster)
	if slices.ContainsFunc(c.Domains, func(domain string) bool { return app.Name == "apps."+domain }) {
		return Source{Object: *app.Cluster, Field: "the apps domain"}
	}
	if c.Apps != nil && c.Apps.Infra != nil {
		return Source{Object: *c.Apps.Infra, Field: "spec.appsIngress.baseDomain"}
	}
	return Source{Object: *app.Cluster, Field: "the apps domain"}
}

// proxyAddressSources returns the fields that define the addresses of the proxies of a cluster in a view.
func (r *resolver) proxyAddressSources(ref model.Ref, out *View) []Source {
	var list []Source
	for _, i := range r.servingInfras(ref, out) {
		switch {
		case i.Proxy == nil:
		case out.View == VLAN:
			list = appendNew(list, Source{Object: i.Ref, Field: "spec.infraComponents.proxy.serverIP"})
		case i.Proxy.Service == "":
			list = appendNew(list, Source{Object: i.Ref, Field: "spec.infraComponents.proxy.internalProxyService"})
		default:
			list = appendNew(list, Source{Object: model.ParseRef("Service", i.Proxy.Service), Field: "spec.clusterIPs"})
		}
	}
	return list
}

// dnsAddressSources returns the fields that define the addresses of the DNS servers of a cluster in a view.
func (r *resolver) dnsAddressSources(ref model.Ref, out *View) []Source {
	var list []Source
	for _, i := range r.servingInfras(ref, out) {
		if out.View == VLAN {
			list = appendNew(list, Source{Object: i.Ref, Field: "spec.infraComponents.dns"})
		} else {
			list = appendNew(list, Source{Object: model.ParseRef("Service", i.Key()+"-"+v1alpha1.ComponentDNS), Field: "spec.clusterIPs"})
		}
	}
	return list
}

// appsAddressSources returns the fields that define the apps address.
func (r *resolver) appsAddressSources(apps *model.Apps) []Source {
	if apps.Infra == nil {
		return nil
	}
	infra := *apps.Infra
	switch apps.Source {
	case model.AppsStatic:
		return []Source{{Object: infra, Field: "spec.appsIngress.addresses"}}
	case model.AppsMirrored:
		return []Source{{Object: infra, Field: "spec.appsIngress.source (MirroredService)"}}
	case model.AppsStatus:
		list := []Source{{Object: infra, Field: "status.appsIngress.externalIPs"}}
		if status := r.infraObject(infra).Status.AppsIngress; status != nil && status.ServiceName != "" {
			list = append(list, Source{
				Object: model.Ref{Kind: "Service", Namespace: status.ServiceNamespace, Name: status.ServiceName},
				Field:  "status.loadBalancer, in the hosted cluster,",
			})
		}
		return list
	default:
		return nil
	}
}

// ports returns the routes for the name of the proxies that serve a cluster in a view.
func (r *resolver) ports(ref model.Ref, out *View) []Port {
	var list []Port
	for _, p := range r.ProxyServers {
		if p.Infra == nil || !slices.ContainsFunc(r.servingInfras(ref, out), func(i *model.Infra) bool { return i.Ref == *p.Infra }) {
			continue
		}
		report := routes.NewReport(p, r.objects)
		for i := range report.Listeners {
			l := &report.Listeners[i]
			if t := l.Find(r.name); t != nil {
				list = append(list, Port{ProxyServer: p.Key(), Port: l.Port, Target: *t})
			}
		}
	}
	return list
}
