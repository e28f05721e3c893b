package v1alpha1

import (
	"k8s.io/apimachinery/pkg/types"
)

// IsEnabled reports whether apps names are served and routed.
func (a *AppsIngress) IsEnabled() bool { return a != nil && a.Enabled }

// LacksClass reports whether the apps Service needs a load balancer class and has none. platform is the
// platform type of the HostedCluster. On KubeVirt, both the cloud controller and MetalLB would write the
// status of a Service without a class.
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

// EffectivePorts returns the ports of the apps Service, with the defaults 80 and 443.
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

// ServiceKey returns the namespace and name of the apps Service in the hosted cluster with the given name.
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
