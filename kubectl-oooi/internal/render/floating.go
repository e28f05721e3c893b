package render

import (
	"net/netip"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
)

// holderPort is where the process that holds the floating address tells how it is.
const (
	holderPort     = 9906
	holderPortName = "holder"
)

// floats reports whether the proxy's address moves between instances, which have others of their
// own.
func (in *Input) floats() bool { return len(in.Infra.Spec.InfraComponents.Proxy.Instances) > 0 }

// floating are the addresses that move: all by which clients are to reach the proxy.
func (in *Input) floating() []string {
	var list []string
	for _, a := range in.Infra.Spec.InfraComponents.Proxy.ServerIPs() {
		list = append(list, string(a))
	}
	return list
}

// FloatingLease names the Lease that says which instance of the proxy has its address.
func FloatingLease(infra *v1alpha1.Infra) string { return infra.Name + "-proxy-address" }

// floatingLease is that Lease, with nothing in it: who holds the address says so.
func (in *Input) floatingLease() *unstructured.Unstructured {
	meta := in.meta(v1alpha1.ComponentProxy, FloatingLease(in.Infra))
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	u.SetNamespace(meta.Namespace)
	u.SetName(meta.Name)
	u.SetLabels(meta.Labels)
	return u
}

// floatingRules are what the process that holds the address needs, and on OpenShift what its pod
// does.
func (in *Input) floatingRules() []rule {
	here := func(resource, group string, names []string, verbs ...string) rule {
		return rule{in.Infra.Namespace, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}}
	}
	rules := []rule{here("leases", "coordination.k8s.io", []string{FloatingLease(in.Infra)}, "get", "watch", "update")}
	if in.OpenShift {
		rules = append(rules, here("securitycontextconstraints", "security.openshift.io", []string{in.constraints()}, "use"))
	}
	return rules
}

// holder has the address at one of the instances, one whose Envoy is ready: while an xdsd is away
// its Envoy goes on, and so do the connections by it. It is the one container with a capability, and
// runs as root: Linux gives no capability that is added to anybody else. It has no other of root's.
func (in *Input) holder(oooi string, i instance, others []instance) corev1.Container {
	command := []string{
		"/xdsd", "hold", "--lease", in.Infra.Namespace + "/" + FloatingLease(in.Infra), "--identity", "$(POD_NAME)", "--device", vlanDevice,
		"--address", strings.Join(in.floating(), ","), "--ready", "http://127.0.0.1:9901/ready",
		"--http", "$(POD_IP):9906", "--state", "/var/lib/xdsd/holder.json",
	}
	if witnesses := in.witnesses(i, others); len(witnesses) > 0 {
		command = append(command, "--witness", strings.Join(witnesses, ","))
	}
	if in.onOVN() {
		command = append(command, "--own", strings.Join(in.prefixes(i), ","))
		if gateway := in.gatewayOf(i); gateway.IsValid() {
			command = append(command, "--gateway", gateway.String())
		}
	}
	c := confined(corev1.Container{
		Name: "holder", Image: oooi, Env: []corev1.EnvVar{podIP, podName}, Command: command,
		Ports:          []corev1.ContainerPort{{Name: holderPortName, ContainerPort: holderPort, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe: probe("/readyz", holderPortName, 2), LivenessProbe: probe("/healthz", holderPortName, 10),
		Resources:    resources(nil, "10m", "32Mi"),
		VolumeMounts: []corev1.VolumeMount{{Name: "holder", MountPath: "/var/lib/xdsd"}, tokenMount},
	})
	c.SecurityContext.RunAsUser, c.SecurityContext.RunAsNonRoot = new(int64(0)), new(false)
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN", "NET_RAW"}
	return c
}

// gatewayOf is the VLAN's gateway if one of an instance's addresses is in its subnet; else invalid.
func (in *Input) gatewayOf(i instance) netip.Addr {
	gateway, err := v1alpha1.ParseAddress(in.Infra.Spec.NetworkConfig.Gateway)
	if err != nil || !slices.ContainsFunc(i.addresses, func(a netip.Addr) bool { return prefixOf(a, in.networks()).Contains(gateway) }) {
		return netip.Addr{}
	}
	return gateway
}

// witnesses are others on the VLAN, which an instance hears unless it is cut off: the gateway, the
// other instances, DNS and DHCP.
func (in *Input) witnesses(self instance, others []instance) []string {
	var list []string
	add := func(text string) {
		if a, err := v1alpha1.ParseAddress(text); err == nil && !slices.Contains(self.addresses, a) && !slices.Contains(list, a.String()) {
			list = append(list, a.String())
		}
	}
	add(in.Infra.Spec.NetworkConfig.Gateway)
	for _, o := range others {
		for _, a := range o.addresses {
			add(a.String())
		}
	}
	components := &in.Infra.Spec.InfraComponents
	var servers []v1alpha1.Instance
	if components.DNS.IsEnabled() {
		servers = append(servers, components.DNS.EffectiveInstances()...)
	}
	if components.DHCP.IsEnabled() {
		servers = append(servers, components.DHCP.EffectiveInstances()...)
	}
	for _, s := range servers {
		add(string(s.IP))
	}
	return list
}

// sources are the instance's own addresses, one a family, that connections to applications leave
// from: the floating one is somewhere else, or soon may be.
func sources(addresses []netip.Addr) []string {
	var list []string
	for _, six := range []bool{false, true} {
		if i := slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Is6() == six }); i >= 0 {
			list = append(list, addresses[i].String())
		}
	}
	return list
}

// constraints names the SecurityContextConstraints of the proxy's pods, where they need their own.
func (in *Input) constraints() string { return roleName(in.Infra, v1alpha1.ComponentProxy) }

// securityContextConstraints are restricted-v2 with what holder takes: two capabilities, and a user
// of its choice. The pod has its other users from its own spec.
func (in *Input) securityContextConstraints() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"allowHostDirVolumePlugin": false, "allowHostIPC": false, "allowHostNetwork": false, "allowHostPID": false, "allowHostPorts": false,
		"allowPrivilegeEscalation": false, "allowPrivilegedContainer": false, "readOnlyRootFilesystem": true,
		"allowedCapabilities":      []any{"NET_ADMIN", "NET_RAW"},
		"defaultAddCapabilities":   []any{},
		"requiredDropCapabilities": []any{"ALL"},
		"priority":                 nil,
		"runAsUser":                map[string]any{"type": "RunAsAny"},
		"seLinuxContext":           map[string]any{"type": "MustRunAs"},
		"fsGroup":                  map[string]any{"type": "MustRunAs"},
		"supplementalGroups":       map[string]any{"type": "RunAsAny"},
		"seccompProfiles":          []any{"runtime/default"},
		"volumes":                  []any{"emptyDir", "projected"},
		"users":                    []any{}, "groups": []any{},
	}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "security.openshift.io", Version: "v1", Kind: "SecurityContextConstraints"})
	u.SetName(in.constraints())
	u.SetLabels(in.labels(v1alpha1.ComponentProxy))
	return u
}
