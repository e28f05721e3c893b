package render

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// holderPort serves health, metrics and state of xdsd hold.
const (
	holderPort     = 9906
	holderPortName = "holder"
)

// hasFloatingAddress reports whether the proxy has several replicas with a floating address.
func (in *Input) hasFloatingAddress() bool {
	return len(in.Infra.Spec.InfraComponents.Proxy.Instances) > 0
}

// floatingAddresses returns the addresses at which clients reach the proxy, which move together; none if the proxy is disabled.
func (in *Input) floatingAddresses() []string {
	if !in.Infra.Spec.InfraComponents.Proxy.IsEnabled() {
		return nil
	}
	var list []string
	for _, a := range in.Infra.Spec.InfraComponents.Proxy.ServerIPs() {
		list = append(list, string(a))
	}
	return list
}

// FloatingLease returns the name of the Lease, in the Infra's namespace, whose holder is the pod with the floating
// address.
func FloatingLease(infra *v1alpha1.Infra) string { return infra.Name + "-proxy-address" }

// holder returns the container with xdsd hold. It checks whether Envoy is ready, not xdsd serve, because Envoy and
// its connections continue while xdsd serve restarts. It is the only container with capabilities, and runs as root,
// because Linux gives added capabilities only to root. All other capabilities are dropped.
func (in *Input) holder(oooi string, given *corev1.ResourceRequirements, limits []string, i instance, others []instance) corev1.Container {
	command := []string{
		"/xdsd", "hold", "--lease", in.Infra.Namespace + "/" + FloatingLease(in.Infra), "--identity", "$(POD_NAME)", "--device", vlanDevice,
		"--address", strings.Join(in.floatingAddresses(), ","), "--ready", "http://127.0.0.1:9907/ready",
		"--http", "$(POD_IP):9906", "--state", "/var/lib/xdsd/holder.json",
	}
	command = append(command, option("--witness", in.witnesses(i, others)...)...)
	if in.onOVN() {
		command = append(command, option("--own", in.prefixes(i)...)...)
		command = append(command, option("--gateway", in.gatewayOf(i))...)
	}
	command = append(command, limits...)
	c := restrictedContainer(corev1.Container{
		Name: "holder", Image: oooi, Env: []corev1.EnvVar{podIP, podName}, Command: command,
		Ports:          []corev1.ContainerPort{tcpPort(holderPortName, holderPort)},
		ReadinessProbe: httpProbe("/readyz", holderPortName, 2), LivenessProbe: httpProbe("/healthz", holderPortName, 10),
		Resources: resources(given, "10m", "32Mi"), Lifecycle: preStop("/prestop/holder"),
		VolumeMounts: []corev1.VolumeMount{{Name: "holder", MountPath: "/var/lib/xdsd"}, tokenMount},
	})
	c.SecurityContext.RunAsUser, c.SecurityContext.RunAsNonRoot = new(int64(0)), new(false)
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN", "NET_RAW"}
	return c
}

// gatewayOf returns the VLAN's gateway if it is in the subnet of one of the replica's addresses; otherwise the empty string.
func (in *Input) gatewayOf(i instance) string {
	gateway, err := v1alpha1.ParseAddress(in.Infra.Spec.NetworkConfig.Gateway)
	if err != nil || !slices.ContainsFunc(i.addresses, func(a netip.Addr) bool { return in.prefixOf(a).Contains(gateway) }) {
		return ""
	}
	return gateway.String()
}

// witnesses returns the addresses that a replica probes to detect that it has lost the VLAN: the gateway, the other
// replicas, DNS and DHCP.
func (in *Input) witnesses(self instance, others []instance) []string {
	list := []string{in.Infra.Spec.NetworkConfig.Gateway}
	for _, o := range others {
		list = append(list, texts(o.addresses)...)
	}
	list = append(list, in.serverAddresses(v1alpha1.ComponentDNS, v1alpha1.ComponentDHCP)...)
	return texts(slices.DeleteFunc(parseAddresses(list...), func(a netip.Addr) bool { return slices.Contains(self.addresses, a) }))
}

// sources returns a replica's fixed addresses, at most one of each family, as source addresses of connections to apps on
// the VLAN. The floating address is not used, because it may move to another replica.
func sources(addresses []netip.Addr) []string {
	var list []string
	for _, six := range []bool{false, true} {
		if i := slices.IndexFunc(addresses, func(a netip.Addr) bool { return a.Is6() == six }); i >= 0 {
			list = append(list, addresses[i].String())
		}
	}
	return list
}

// constraints returns the name of the SecurityContextConstraints for proxies with a floating address.
func (in *Input) constraints() string { return roleName(in.Infra, v1alpha1.ComponentProxy) }

// securityContextConstraints returns restricted-v2 with the additional permissions of container holder: two capabilities
// and any user. The pod spec sets the users of the other containers.
func (in *Input) securityContextConstraints() *unstructured.Unstructured {
	return object(read.ConstraintsKind, metav1.ObjectMeta{Name: in.constraints(), Labels: in.labels(v1alpha1.ComponentProxy)}, map[string]any{
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
	})
}
