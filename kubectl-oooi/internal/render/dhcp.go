package render

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// dhcp is a coredhcp for each instance. They share one set of leases.
func dhcp(in *Input) ([]runtime.Object, error) {
	const component = v1alpha1.ComponentDHCP
	spec := in.Infra.Spec.InfraComponents.DHCP
	instances, err := in.instances(component, spec.EffectiveInstances())
	if err != nil {
		return nil, err
	}
	machines := in.machines()
	readable := machines
	if in.ControlPlane == "" {
		readable = "" // there can be no Role in a namespace that is yet to come
	}
	rules := []rule{
		{readable, rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachineinstances", "virtualmachines"}, Verbs: read}},
		{in.Infra.Namespace, rbacv1.PolicyRule{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
		}},
	}
	if readable != "" { // not in all namespaces: those of others are none of its business
		rules = append(rules, rule{readable, rbacv1.PolicyRule{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create"}}})
	}
	list := in.rights(component, rules...)
	for _, i := range instances {
		text, err := in.dhcpConfig(i, machines)
		if err != nil {
			return nil, err
		}
		config := map[string]string{"config.yml": text}
		nad, network, err := in.attachment(component, i)
		if err != nil {
			return nil, err
		}
		set, err := in.statefulSet(workload{
			component: component, instance: i, network: network, config: with(config, configOf(nad)), port: 67,
			spec: corev1.PodSpec{
				Affinity: in.spread(component, len(instances)),
				Containers: []corev1.Container{confined(corev1.Container{
					Name: "coredhcp", Image: cmp.Or(spec.Image, in.Images.Oooi),
					Command: []string{"/coredhcp", "--config", "/etc/coredhcp/config.yml", "--http", "$(POD_IP):9903"},
					Env:     []corev1.EnvVar{podIP},
					Ports: []corev1.ContainerPort{
						{Name: "dhcp", ContainerPort: 67, Protocol: corev1.ProtocolUDP},
						{Name: v1alpha1.PortHealth, ContainerPort: 9903, Protocol: corev1.ProtocolTCP},
					},
					ReadinessProbe: probe("/readyz", v1alpha1.PortHealth, 2),
					LivenessProbe:  probe("/healthz", v1alpha1.PortHealth, 10),
					Resources:      resources(spec.Resources, "20m", "64Mi"),
					VolumeMounts: []corev1.VolumeMount{
						{Name: "config", MountPath: "/etc/coredhcp", ReadOnly: true}, {Name: "state", MountPath: "/var/lib/coredhcp"}, tokenMount,
					},
				})},
				Volumes: []corev1.Volume{configVolume(i.name), emptyDir("state", false), tokenVolume()},
			},
		})
		if err != nil {
			return nil, err
		}
		list = append(list, configMap(in.meta(component, i.name), config), nad, set)
	}
	return append(list, in.disruption(component, len(instances))...), nil
}

// machines is the namespace of the virtual machines, as far as it can be told; empty for all.
func (in *Input) machines() string {
	if in.MachineNamespace == "" && in.ControlPlane == "" && in.HostedCluster.Name != "" {
		return model.ControlPlaneNamespace(in.HostedCluster.Namespace, in.HostedCluster.Name)
	}
	return cmp.Or(in.MachineNamespace, in.ControlPlane)
}

// dhcpConfig is the configuration of one instance, in CoreDHCP's format.
func (in *Input) dhcpConfig(i instance, machines string) (string, error) {
	subnet, err := netip.ParsePrefix(in.Infra.Spec.NetworkConfig.CIDR)
	if err != nil || !subnet.Addr().Is4() {
		return "", fmt.Errorf("spec.networkConfig.cidr: DHCP takes an IPv4 network, not %q: set infraComponents.dhcp.enabled to false, or put the IPv4 network there", in.Infra.Spec.NetworkConfig.CIDR)
	}
	who, err := in.clients(machines)
	if err != nil {
		return "", err
	}
	leases, err := in.leases(i, subnet.Masked())
	if err != nil {
		return "", err
	}
	options, err := in.dhcpOptions()
	if err != nil {
		return "", err
	}
	plugins := []map[string]string{
		{"kubevirt": who}, {"leasedb": leases},
		{"netmask": net.IP(net.CIDRMask(subnet.Bits(), 32)).String()}, {"router": in.Infra.Spec.NetworkConfig.Gateway},
	}
	if servers := in.resolvers(); servers != "" {
		plugins = append(plugins, map[string]string{"dns": servers})
	}
	plugins = append(plugins, map[string]string{"options": options})
	text, err := yaml.Marshal(map[string]any{"server4": map[string]any{"listen": []string{"%" + vlanDevice}, "plugins": plugins}})
	if err != nil {
		return "", fmt.Errorf("encoding the configuration of %s: %w", i.name, err)
	}
	return string(text), nil
}

// clients says whom the server serves, in the words of plugin kubevirt.
func (in *Input) clients(machines string) (string, error) {
	words := []string{"network=" + in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace).String()}
	if machines != "" {
		words = append(words, "namespace="+machines)
	}
	words = append(words, "snapshot=/var/lib/coredhcp/machines.json")
	switch selector := in.Infra.Spec.InfraComponents.DHCP.VMSelector; {
	case selector != nil:
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return "", fmt.Errorf("spec.infraComponents.dhcp.vmSelector: %w", err)
		}
		if !s.Empty() {
			words = append(words, "selector="+s.String())
		}
	case in.cluster() != nil && in.cluster().InfraID != "":
		words = append(words, "infra-id="+in.cluster().InfraID)
	case machines == "":
		return "", fmt.Errorf("spec.hostedClusterRef: DHCP has to know whose virtual machines it serves: name the hosted cluster, or set infraComponents.dhcp.vmSelector")
	}
	return strings.Join(words, " "), nil
}

// leases says which addresses there are, in the words of plugin leasedb.
func (in *Input) leases(i instance, subnet netip.Prefix) (string, error) {
	spec := in.Infra.Spec.InfraComponents.DHCP
	lease, err := spec.LeaseDuration()
	if err != nil {
		return "", fmt.Errorf("spec.infraComponents.dhcp.leaseTime: %w", err)
	}
	words := []string{
		"store=kubernetes", "namespace=" + in.Infra.Namespace, "pool=" + in.Infra.Namespace + "." + in.Infra.Name,
		"snapshot=/var/lib/coredhcp/leases.json", "cidr=" + subnet.String(),
	}
	for _, r := range spec.EffectiveRanges() {
		words = append(words, fmt.Sprintf("range=%s-%s", r.Start, r.End))
	}
	for _, text := range spec.Exclude {
		r, err := v1alpha1.ParseAddressRange(text)
		if err != nil {
			return "", fmt.Errorf("spec.infraComponents.dhcp.exclude: %w", err)
		}
		words = append(words, fmt.Sprintf("exclude=%s-%s", r.First, r.Last))
	}
	for _, a := range in.protected(i, subnet) {
		words = append(words, "protected="+a.String())
	}
	return strings.Join(append(words, "server="+i.addresses[0].String(), "lease="+lease.String()), " "), nil
}

// protected are the addresses of the subnet that no machine may get, whatever is reserved for it: the gateway's, and those of
// our servers beside the instance itself.
func (in *Input) protected(i instance, subnet netip.Prefix) []netip.Addr {
	spec := in.Infra.Spec
	texts := []string{spec.NetworkConfig.Gateway}
	add := func(list []v1alpha1.Instance) {
		for _, one := range list {
			texts = append(texts, string(one.IP))
		}
	}
	c := spec.InfraComponents
	add(c.DHCP.EffectiveInstances())
	if c.DNS.IsEnabled() {
		add(c.DNS.EffectiveInstances())
	}
	if c.Proxy.IsEnabled() {
		for _, ip := range c.Proxy.ServerIPs() {
			texts = append(texts, string(ip))
		}
		add(c.Proxy.EffectiveInstances())
	}
	var list []netip.Addr
	for _, text := range texts {
		a, err := v1alpha1.ParseAddress(text)
		if err == nil && subnet.Contains(a) && a != i.addresses[0] && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// resolvers are what clients ask for names: our DNS where it runs, so that nobody goes past it.
func (in *Input) resolvers() string {
	dns := in.Infra.Spec.InfraComponents.DNS
	if !dns.IsEnabled() {
		return strings.Join(in.Infra.Spec.NetworkConfig.DNSServers, " ")
	}
	var list []string
	for _, i := range dns.EffectiveInstances() {
		list = append(list, string(i.IP))
	}
	return strings.Join(list, " ")
}

// named are the names of options that plugin options knows, beside those of its own.
var named = map[string]string{
	"ntp-servers": "ntp", "domain-name": "domain", "domain-search": "search", "interface-mtu": "mtu", "broadcast-address": "broadcast",
	"host-name": "hostname", "classless-routes": "routes", "renew-timer": "t1", "rebind-timer": "t2",
}

// dhcpOptions are spec.infraComponents.dhcp.options, in the words of plugin options.
func (in *Input) dhcpOptions() (string, error) {
	var words []string
	for i, o := range in.Infra.Spec.InfraComponents.DHCP.Options {
		if strings.ContainsAny(o.Value, " \t\n") {
			return "", fmt.Errorf("spec.infraComponents.dhcp.options[%d]: white space in %q, which CoreDHCP cannot carry: give its code, and hex:... for its value", i, o.Value)
		}
		switch {
		case o.Code != nil && strings.Contains(o.Value, ":"):
			words = append(words, fmt.Sprintf("option=%d:%s", *o.Code, o.Value))
		case o.Code != nil:
			return "", fmt.Errorf("spec.infraComponents.dhcp.options[%d]: the value of option %d needs its type in front, such as ip:%s", i, *o.Code, o.Value)
		default:
			words = append(words, cmp.Or(named[o.Name], o.Name)+"="+o.Value)
		}
	}
	return strings.Join(words, " "), nil
}
