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
	Code: "OOOI-PRX-001", Title: "the Infra's ProxyServer exists", InfraOnly: true, Component: v1alpha1.ComponentProxy, Run: checkProxy,
	Reads: site.In(site.AtInfra, site.Infras, site.ProxyServers),
	About: "setup creates a ProxyServer with `infraRef`, in which xdsd finds its routes and limits.",
}

func checkProxy(s *Site) []Finding {
	if !s.enabled(v1alpha1.ComponentProxy) || len(s.Proxies()) > 0 {
		return nil
	}
	return []Finding{failed(s.Ref(), setupRemedy, "no ProxyServer has infraRef %s: the proxy keeps its last configuration", s.Infra.Name)}
}

var configurationValid = proxyConditionCheck(Check{
	Code: "OOOI-PRX-003", Title: "the proxy's configuration is valid and accepted by Envoy",
	About: "Condition ConfigurationValid of the ProxyServer: each backend has a Service, and Envoy has accepted the whole configuration. For rejected " +
		"parts, Envoy keeps the previous configuration.",
}, v1alpha1.ConditionConfigurationValid)

var backendsConnect = problemCheck(Check{
	Code: "OOOI-PRX-012", Title: "connections to the proxy's backends succeed", Component: v1alpha1.ComponentProxy,
	About: "xdsd connects to each endpoint of the proxy's backends. If connections are refused, the endpoint's process does not run; if they time out, a " +
		"NetworkPolicy " +
		"or the network drops them.",
})

var backendsShake = problemCheck(Check{
	Code: "OOOI-PRX-018", Title: "the proxy's backends complete TLS handshakes", Component: v1alpha1.ComponentProxy,
	About: "If an endpoint accepts connections but does not complete handshakes, it hangs, or the network loses large packets.",
})

var certificatesValid = problemCheck(Check{
	Code: "OOOI-PRX-019", Title: "certificates of the proxy's backends match their names and stay valid for a week", Component: v1alpha1.ComponentProxy,
	About: "The proxy passes TLS through, so that clients see the backends' certificates. HyperShift renews the control plane's certificates.",
})

var withinLimits = problemCheck(Check{
	Code: "OOOI-PRX-013", Title: "the proxy is below its limits", Component: v1alpha1.ComponentProxy, Run: checkLimits,
	Reads: site.In(site.AtInfra, site.ProxyServers),
	About: "Condition WithinLimits of the ProxyServer: connections beyond a limit are refused. The message names the limit, the clients that reached it, " +
		"and the field that raises it.",
})

func checkLimits(s *Site) []Finding {
	var findings []Finding
	for _, p := range s.Proxies() {
		ref := s.Ref()
		ref.Kind, ref.Name = site.ProxyServers.Kind, p.Name
		for _, f := range s.conditionFindings(v1alpha1.ComponentProxy, ref, p.Status.Conditions, v1alpha1.ConditionWithinLimits) {
			// The limit may apply to a single client, unless it also refuses xdsd's handshakes.
			if !meta.IsStatusConditionFalse(p.Status.Conditions, v1alpha1.ConditionReady) {
				f.Severity = Warn
			}
			findings = append(findings, f)
		}
	}
	return findings
}

var addressHeldOnce = problemCheck(Check{
	Code: "OOOI-PRX-016", Title: "only one host holds the floating address", Component: v1alpha1.ComponentProxy,
	About: "A Lease and ARP ensure that one replica at a time holds the floating address. Another host that answers ARP requests for it gets VMs' " +
		"connections. Two replicas can both hold the address only while they reach neither each other nor the API server.",
})

var addressHeld = problemCheck(Check{
	Code: "OOOI-PRX-017", Title: "a proxy replica holds the floating address", Component: v1alpha1.ComponentProxy,
	About: "When a holder fails, another replica takes the floating address within seconds if its proxy is ready and its interface has a carrier.",
})

var proxyReady = proxyConditionCheck(Check{
	Code: "OOOI-PRX-004", Title: "every proxy replica is ready and up to date",
	About: "Condition Ready of the ProxyServer: every replica reports its state and has acknowledged its configuration, and handshakes through every " +
		"listener succeed.",
}, v1alpha1.ConditionReady)

var serviceAccepts = problemCheck(Check{
	Code: "OOOI-SVC-004", Title: "the cluster IP of the proxy's Service accepts connections", Component: v1alpha1.ComponentProxy,
	About: "Pods of the management cluster reach the proxy by its Service. If connections to the pods succeed and connections to the Service fail, " +
		"kube-proxy or its replacement is at fault.",
})

var endpointsOwn = Check{
	Code: "OOOI-SVC-001", Title: "all endpoints of oooi's Services are oooi's pods", Component: componentOther, Run: checkEndpoints,
	Reads: site.In(site.AtInfra, site.Services, site.EndpointSlices, site.Pods),
	About: "An EndpointSlice that another client created, or a pod with copied labels, receives a share of a Service's connections.",
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
