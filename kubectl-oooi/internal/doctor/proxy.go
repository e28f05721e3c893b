package doctor

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

var proxyExists = Check{
	Code: "OOOI-PRX-001", Title: "the Infra has its ProxyServer", InfraOnly: true, Component: v1alpha1.ComponentProxy, Run: checkProxy,
	Reads: site.In(site.AtInfra, site.Infras, site.ProxyServers),
	About: "setup creates a ProxyServer with `infraRef`, by which xdsd finds its routes and limits.",
}

func checkProxy(s *Site) []Finding {
	if !s.enabled(v1alpha1.ComponentProxy) || len(s.Proxies()) > 0 {
		return nil
	}
	return []Finding{failed(s.Ref(), setupRemedy, "no ProxyServer has infraRef %s: the proxy keeps what it last knew", s.Infra.Name)}
}

var configurationValid = proxyConditionCheck(Check{
	Code: "OOOI-PRX-003", Title: "the proxy's configuration is valid, and Envoy has accepted it",
	About: "Condition ConfigurationValid of the ProxyServer: each backend has a Service, and Envoy has rejected no part of the configuration. Rejected " +
		"parts keep their previous state.",
}, v1alpha1.ConditionConfigurationValid)

var backendsConnect = problemCheck(Check{
	Code: "OOOI-PRX-012", Title: "connections to the proxy's backends succeed", Component: v1alpha1.ComponentProxy,
	About: "xdsd connects to each endpoint of the proxy's backends. Endpoints that refuse have no process; if connections time out, a NetworkPolicy or " +
		"the path drops them.",
})

var backendsShake = problemCheck(Check{
	Code: "OOOI-PRX-018", Title: "the proxy's backends complete TLS handshakes", Component: v1alpha1.ComponentProxy,
	About: "An endpoint that accepts connections and does not complete handshakes hangs, or large packets are lost on the way to it.",
})

var certificatesValid = problemCheck(Check{
	Code: "OOOI-PRX-019", Title: "certificates of the proxy's backends contain their names, and are valid for another week", Component: v1alpha1.ComponentProxy,
	About: "The proxy passes TLS through, so that clients see the certificates of the backends. HyperShift renews those of the control plane.",
})

var withinLimits = problemCheck(Check{
	Code: "OOOI-PRX-013", Title: "the proxy is below its limits", Component: v1alpha1.ComponentProxy, Run: checkLimits,
	Reads: site.In(site.AtInfra, site.ProxyServers),
	About: "Condition WithinLimits of the ProxyServer: connections that reach a limit are refused. The message names the limit, who reached it, and the " +
		"field that raises it.",
})

func checkLimits(s *Site) []Finding {
	var findings []Finding
	for _, p := range s.Proxies() {
		ref := s.Ref()
		ref.Kind, ref.Name = site.ProxyServers.Kind, p.Name
		for _, f := range s.conditionFindings(v1alpha1.ComponentProxy, ref, p.Status.Conditions, v1alpha1.ConditionWithinLimits) {
			// The limit may be that of a single client, unless it also refuses xdsd's handshakes.
			if !meta.IsStatusConditionFalse(p.Status.Conditions, v1alpha1.ConditionReady) {
				f.Severity = Warn
			}
			findings = append(findings, f)
		}
	}
	return findings
}

var addressHeldOnce = problemCheck(Check{
	Code: "OOOI-PRX-016", Title: "only one host has the floating address", Component: v1alpha1.ComponentProxy,
	About: "Replicas hold the floating address by turns, by a Lease and by ARP. A host that is no replica and answers for it takes the connections of VMs. " +
		"Two replicas can both have it only while they reach neither each other nor the API server.",
})

var addressHeld = problemCheck(Check{
	Code: "OOOI-PRX-017", Title: "a proxy replica has the floating address", Component: v1alpha1.ComponentProxy,
	About: "A replica takes the floating address within seconds when the last one is gone, if its proxy is ready and its interface has a carrier.",
})

var proxyReady = proxyConditionCheck(Check{
	Code: "OOOI-PRX-004", Title: "every proxy replica is ready and up to date",
	About: "Condition Ready of the ProxyServer: every replica reports its state, has acknowledged its configuration, and handshakes through every " +
		"listener succeed.",
}, v1alpha1.ConditionReady)

var serviceAccepts = problemCheck(Check{
	Code: "OOOI-SVC-004", Title: "the cluster IP of the proxy's Service accepts connections", Component: v1alpha1.ComponentProxy,
	About: "Pods of the management cluster reach the proxy by its Service. If the pods answer and the Service does not, kube-proxy or its replacement is " +
		"at fault.",
})

var endpointsOwn = Check{
	Code: "OOOI-SVC-001", Title: "endpoints of oooi's Services are oooi's pods", Component: componentOther, Run: checkEndpoints,
	Reads: site.In(site.AtInfra, site.Services, site.EndpointSlices, site.Pods),
	About: "An EndpointSlice of another client, or a pod with copied labels, takes a share of the connections to a Service.",
}

func checkEndpoints(s *Site) []Finding {
	own := map[string]bool{}
	for _, p := range s.componentPods() {
		for _, ip := range p.Status.PodIPs {
			own[ip.IP] = true
		}
	}
	services := map[string]bool{}
	for _, o := range site.All[corev1.Service](s.Site, site.Services, site.AtInfra) {
		services[o.Namespace+"/"+o.Name] = s.Owns(o.Labels) && len(o.Spec.Selector) > 0
	}
	var findings []Finding
	for _, u := range s.List(site.EndpointSlices, site.AtInfra) {
		slice, ok := objects.Decode[objects.EndpointSlice](u).(*objects.EndpointSlice)
		if !ok || !services[slice.Service()] {
			continue
		}
		for _, e := range slice.Endpoints {
			if foreign := slices.DeleteFunc(slices.Clone(e.Addresses), func(a string) bool { return own[a] }); len(foreign) > 0 && len(own) > 0 {
				findings = append(findings, foreignEndpoint(u, slice.Service(), foreign[0]))
			}
		}
	}
	return findings
}

func foreignEndpoint(u *unstructured.Unstructured, service, address string) Finding {
	return warned(site.RefTo(u), "find the client that wrote the EndpointSlice (--show-managed-fields), or the pod with the labels of the Service's "+
		"selector: kubectl get pods -A -o wide --field-selector status.podIP="+address,
		"endpoint %s of Service %s is not one of oooi's pods", address, service)
}
