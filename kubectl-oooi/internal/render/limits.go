package render

import (
	"cmp"
	"fmt"
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

// limitArguments are the arguments that limit a proxy.
type limitArguments struct{ bootstrap, serve, hold []string }

// proxyLimits returns the arguments for the limits of the proxy.
func (in *Input) proxyLimits() limitArguments {
	proxy := in.Infra.Spec.InfraComponents.Proxy
	limits := cmp.Or(proxy.Limits, in.ProxySpec.Limits, &v1alpha1.ProxyLimits{})
	a := limitArguments{bootstrap: []string{"--memory", "$(" + envoyMemory.Name + ")"}}
	envoy := cmp.Or(proxy.Resources, in.ProxySpec.Resources, &corev1.ResourceRequirements{})
	switch {
	case limits.MaxHeap != nil:
		a.bootstrap = append(a.bootstrap, "--max-heap", limits.MaxHeap.String())
	case envoy.Limits.Memory().IsZero():
		a.bootstrap = append(a.bootstrap, "--max-heap", defaultMaxHeap)
	}
	if limits.MaxConnections != nil {
		a.bootstrap = append(a.bootstrap, "--max-connections", fmt.Sprint(*limits.MaxConnections))
	}
	rate := v1alpha1.DefaultConnectionsPerSecond
	if limits.ConnectionsPerSecond != nil {
		rate = *limits.ConnectionsPerSecond
	}
	var connections []string
	rates := []string{fmt.Sprint(rate)}
	for _, p := range limits.Ports {
		if p.MaxConnections != nil {
			connections = append(connections, fmt.Sprintf("%d=%d", p.Port, *p.MaxConnections))
		}
		if p.ConnectionsPerSecond != nil {
			rates = append(rates, fmt.Sprintf("%d=%d", p.Port, *p.ConnectionsPerSecond))
		}
	}
	if len(connections) > 0 {
		a.bootstrap = append(a.bootstrap, "--port-max-connections", strings.Join(connections, ","))
	}
	a.serve = []string{"--connections-per-second", strings.Join(rates, ",")}
	if limits.MaxConnections != nil {
		a.serve = append(a.serve, "--max-connections", fmt.Sprint(*limits.MaxConnections))
	}
	if in.hasFloatingAddress() {
		a.serve = append(a.serve, "--holder", fmt.Sprintf("http://$(POD_IP):%d/state", holderPort))
		a.hold = sourceLimits(limits.PerSource)
	}
	return a
}

// sourceLimits returns the arguments of xdsd hold for the limits of each client.
func sourceLimits(limits *v1alpha1.SourceLimits) []string {
	limits = cmp.Or(limits, &v1alpha1.SourceLimits{})
	connections, rate := v1alpha1.DefaultSourceMaxConnections, v1alpha1.DefaultSourceConnectionsPerSecond
	connections, rate = *cmp.Or(limits.MaxConnections, &connections), *cmp.Or(limits.ConnectionsPerSecond, &rate)
	arguments := []string{"--source-max-connections", fmt.Sprint(connections), "--source-connections-per-second", fmt.Sprint(rate)}
	if limits.PrefixLength != nil {
		arguments = append(arguments, "--source-prefix-length", fmt.Sprint(*limits.PrefixLength))
	}
	if limits.IPv6PrefixLength != nil {
		arguments = append(arguments, "--source-ipv6-prefix-length", fmt.Sprint(*limits.IPv6PrefixLength))
	}
	var networks []string
	for _, n := range limits.Networks {
		networks = append(networks, fmt.Sprintf("%s=%d/%d", n.CIDR, *cmp.Or(n.MaxConnections, &connections), *cmp.Or(n.ConnectionsPerSecond, &rate)))
	}
	if len(networks) > 0 {
		arguments = append(arguments, "--source-network", strings.Join(networks, ","))
	}
	return arguments
}
