package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/densityops/oooi/api/v1alpha1"
)

// envoyMemory is the memory limit of Envoy's container in bytes, from its resources or a LimitRange; without one, the
// memory of the node for pods.
var envoyMemory = corev1.EnvVar{Name: "ENVOY_MEMORY", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{
	ContainerName: "envoy", Resource: "limits.memory", Divisor: resource.MustParse("1"),
}}}

// defaultMaxHeap is the limit of Envoy's heap if its container has no memory limit. 50,000 connections, the default
// limit, use less if few of them have full buffers.
const defaultMaxHeap = "4Gi"

// proxyLimits returns the arguments of xdsd bootstrap, serve and hold for the limits of the proxy.
func (in *Input) proxyLimits() (bootstrap, serve, hold []string) {
	proxy := in.Infra.Spec.InfraComponents.Proxy
	limits := cmp.Or(proxy.Limits, in.ProxySpec.Limits, &v1alpha1.ProxyLimits{})
	maxHeap := ""
	if envoy := cmp.Or(proxy.Resources, in.ProxySpec.Resources, &corev1.ResourceRequirements{}); limits.MaxHeap != nil {
		maxHeap = limits.MaxHeap.String()
	} else if envoy.Limits.Memory().IsZero() {
		maxHeap = defaultMaxHeap
	}
	rate := v1alpha1.DefaultConnectionsPerSecond
	rates := []string{fmt.Sprint(*cmp.Or(limits.ConnectionsPerSecond, &rate))}
	var connections []string
	for _, p := range limits.Ports {
		if p.MaxConnections != nil {
			connections = append(connections, fmt.Sprintf("%d=%d", p.Port, *p.MaxConnections))
		}
		if p.ConnectionsPerSecond != nil {
			rates = append(rates, fmt.Sprintf("%d=%d", p.Port, *p.ConnectionsPerSecond))
		}
	}
	most := option("--max-connections", number(limits.MaxConnections))
	bootstrap = slices.Concat(option("--memory", "$("+envoyMemory.Name+")"), option("--max-heap", maxHeap), most, option("--port-max-connections", connections...))
	serve = slices.Concat(option("--connections-per-second", rates...), most)
	if in.hasFloatingAddress() {
		serve = append(serve, "--holder", fmt.Sprintf("http://$(POD_IP):%d/state", holderPort))
	}
	return bootstrap, serve, sourceLimits(cmp.Or(limits.PerSource, &v1alpha1.SourceLimits{}))
}

// sourceLimits returns the arguments of xdsd hold for the limits of each client.
func sourceLimits(limits *v1alpha1.SourceLimits) []string {
	connections, rate := v1alpha1.DefaultSourceMaxConnections, v1alpha1.DefaultSourceConnectionsPerSecond
	connections, rate = *cmp.Or(limits.MaxConnections, &connections), *cmp.Or(limits.ConnectionsPerSecond, &rate)
	var networks []string
	for _, n := range limits.Networks {
		networks = append(networks, fmt.Sprintf("%s=%d/%d", n.CIDR, *cmp.Or(n.MaxConnections, &connections), *cmp.Or(n.ConnectionsPerSecond, &rate)))
	}
	return slices.Concat(
		option("--source-max-connections", number(&connections)), option("--source-connections-per-second", number(&rate)),
		option("--source-prefix-length", number(limits.PrefixLength)), option("--source-ipv6-prefix-length", number(limits.IPv6PrefixLength)),
		option("--source-network", networks...),
	)
}

// option returns the arguments for a flag with a list of values; none if the list is empty, or has only an empty value.
func option(flag string, values ...string) []string {
	if value := strings.Join(values, ","); value != "" {
		return []string{flag, value}
	}
	return nil
}

// number returns a number in decimal; empty for nil.
func number(n *int32) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}
