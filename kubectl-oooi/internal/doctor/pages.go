package doctor

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/densityops/oooi/api/v1alpha1"
)

// componentControl is the component label of control's pods.
const componentControl = "control"

// page is an HTTP page that each pod of a component serves about itself in the pod network. The zero value is
// no page.
type page struct {
	component string
	port      int
	path      string
}

// Pages that are requested. Readiness pages are not among them: the kubelet requests those, and the pod's
// condition Ready has the result.
var (
	dnsMetrics   = page{v1alpha1.ComponentDNS, 9153, "/metrics"}
	dhcpState    = page{v1alpha1.ComponentDHCP, 9903, "/state"}
	dhcpMetrics  = page{v1alpha1.ComponentDHCP, 9903, "/metrics"}
	xdsdState    = page{v1alpha1.ComponentProxy, 9902, "/state"}
	xdsdMetrics  = page{v1alpha1.ComponentProxy, 9902, "/metrics"}
	envoyMetrics = page{v1alpha1.ComponentProxy, 9901, "/stats/prometheus"}
	controlState = page{componentControl, 9904, "/state"}
	holderState  = page{v1alpha1.ComponentProxy, 9906, "/state"} // only with a floating address
)

// daemonMetrics are the metrics pages of our own daemons, one for each component. They report the process and the
// interfaces of its pod.
var daemonMetrics = []page{dnsMetrics, dhcpMetrics, xdsdMetrics}

// daemon returns the name of the daemon that serves the page, for messages.
func (p page) daemon() string {
	return map[int]string{9153: "coredns", 9903: "coredhcp", 9902: "xdsd", 9901: "Envoy", 9904: "xdsd control", 9906: "xdsd hold"}[p.port]
}

// container returns the name of the container that serves the page.
func (p page) container() string {
	return map[int]string{9153: "coredns", 9903: "coredhcp", 9902: "xdsd", 9901: "envoy", 9904: "control", 9906: "holder"}[p.port]
}

// ourContainers are the containers of components that have probes.
var ourContainers = []string{"coredns", "coredhcp", "xdsd", "envoy", "holder"}

// metrics reports whether the page is in Prometheus' text format.
func (p page) metrics() bool {
	return strings.HasSuffix(p.path, "metrics") || strings.HasSuffix(p.path, "prometheus")
}

// metricPrefixes are prefixes of the names of metrics that checks read. Other metrics are not kept.
var metricPrefixes = []string{
	"oooi_interface_", configMetric, "xdsd_vlan_", "xdsd_dns_service", "coredhcp_vlan_", "coredns_vlan_", probesMetric, "coredns_proxy_healthcheck_failures_total", openFilesMetric, maxFilesMetric,
	"coredns_oooi_", "coredhcp_dhcp4_dropped_total", "coredhcp_dhcp4_received_total",
	"envoy_server_state", "envoy_server_total_connections", "envoy_listener_manager_", "envoy_cluster_membership_", "envoy_cluster_upstream_cx_", "envoy_listener_downstream_cx_overflow", "envoy_listener_downstream_global_cx_overflow", rateLimitedMetric, heapActionMetric, residentMetric, physicalMetric,
}

// stateFields are the top-level fields of JSON pages that checks read. Others, such as control's view of every
// cluster, are not kept.
var stateFields = []string{"leads", "election", "remains", "store", "proxyServers", "served", "backends", "unfinished", "problems", "statusFailure", "statusFailures", "services", "kubevirt", "leasedb", "selections", "heard", "offered"}

// prune returns the body of a page without what no check reads.
func (p page) prune(body string) string {
	if p == holderState { // checks read all of it
		return body
	}
	if !p.metrics() {
		var all map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &all) != nil {
			return body // the check reports that it is not JSON
		}
		maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return !slices.Contains(stateFields, name) })
		text, err := json.Marshal(all)
		if err != nil {
			return body
		}
		return string(text)
	}
	var b strings.Builder
	for line := range strings.Lines(body) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		if slices.ContainsFunc(metricPrefixes, func(f string) bool { return strings.HasPrefix(name, f) }) && !strings.HasPrefix(line, "# HELP ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// servingPods returns the pods of a namespace that serve a page: those that owns selects by
// their labels, or control's, that have the container and an address and are not being deleted.
func (f *Facts) servingPods(p page, namespace string, owns func(labels map[string]string) bool) []*corev1.Pod {
	var list []*corev1.Pod
	for _, u := range f.list(pods, namespace) {
		labels := u.GetLabels()
		if labels[v1alpha1.LabelComponent] != p.component || labels[labelPartOf] != partOf {
			continue
		}
		if p.component != componentControl && !owns(labels) {
			continue
		}
		pod, err := decodeOnce[corev1.Pod](f, u)
		if err != nil || pod.DeletionTimestamp != nil || pod.Status.PodIP == "" {
			continue
		}
		if slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == p.container() }) {
			list = append(list, pod)
		}
	}
	return list
}
