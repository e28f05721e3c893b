package v1alpha1

import (
	"k8s.io/apimachinery/pkg/types"
)

// IsEnabled reports whether apps names are served and routed: a is not nil, and enabled is true.
func (a *AppsIngress) IsEnabled() bool { return a != nil && a.Enabled }

// LacksClass reports whether a Service that oooi creates needs a load balancer class and has none: apps are enabled,
// the source is HostedService, and platform, the platform type of the HostedCluster, is KubeVirt. There, both the cloud
// controller and MetalLB would write the status of a Service without a class.
func (a *AppsIngress) LacksClass(platform string) bool {
	hosted := a.IsEnabled() && (a.Source == "" || a.Source == AppsIngressSourceHostedService)
	return hosted && platform == "KubeVirt" && (a.MetalLB == nil || a.MetalLB.LoadBalancerClass == "")
}

// ShouldInstall reports whether to install MetalLB: the value of install or, if unset, of its alias
// autoInstall. It is false if neither is set, or if m is nil.
func (m *AppsIngressMetalLB) ShouldInstall() bool {
	switch {
	case m == nil:
		return false
	case m.Install != nil:
		return *m.Install
	default:
		return m.AutoInstall != nil && *m.AutoInstall
	}
}

// EffectivePorts returns the ports of the apps Service. Ports that are not set are 80 for HTTP and 443 for HTTPS.
func (a *AppsIngress) EffectivePorts() AppsIngressPorts {
	ports := AppsIngressPorts{HTTP: DefaultAppsHTTPPort, HTTPS: DefaultAppsHTTPSPort}
	if a == nil || a.Ports == nil {
		return ports
	}
	if a.Ports.HTTP != 0 {
		ports.HTTP = a.Ports.HTTP
	}
	if a.Ports.HTTPS != 0 {
		ports.HTTPS = a.Ports.HTTPS
	}
	return ports
}

// ServiceKey returns the namespace and name of the apps Service in the hosted cluster called clusterName. The defaults
// are openshift-ingress and "<clusterName>-apps".
func (a *AppsIngress) ServiceKey(clusterName string) types.NamespacedName {
	key := types.NamespacedName{Namespace: DefaultAppsServiceNamespace, Name: clusterName + "-apps"}
	if a == nil || a.Service == nil {
		return key
	}
	if a.Service.Namespace != "" {
		key.Namespace = a.Service.Namespace
	}
	if a.Service.Name != "" {
		key.Name = a.Service.Name
	}
	return key
}
