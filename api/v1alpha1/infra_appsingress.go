package v1alpha1

import (
	"k8s.io/apimachinery/pkg/types"
)

// IsEnabled reports whether application names are served and routed.
func (a *AppsIngress) IsEnabled() bool { return a != nil && a.Enabled }

// LacksClass reports whether two controllers would write the status of the Service in a hosted cluster on a
// platform of HyperShift's: on KubeVirt the cloud controller looks after every Service without a class, beside MetalLB.
func (a *AppsIngress) LacksClass(platform string) bool {
	hosted := a.IsEnabled() && (a.Source == "" || a.Source == AppsIngressSourceHostedService)
	return hosted && platform == "KubeVirt" && (a.MetalLB == nil || a.MetalLB.LoadBalancerClass == "")
}

// ShouldInstall reports whether MetalLB is to be installed: install, else its
// alias autoInstall, else no.
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

// EffectivePorts returns the ports of the applications, 80 and 443 where none
// are given.
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

// ServiceKey returns the namespace and name of the applications' Service for a
// hosted cluster of the given name.
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
