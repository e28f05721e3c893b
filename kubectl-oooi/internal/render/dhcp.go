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
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/cni"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/objects"
)

// dhcp returns the workload with coredhcp. All replicas use the same Lease objects.
func dhcp(in *Input, instances []instance) (*workload, error) {
	spec := in.Infra.Spec.InfraComponents.DHCP
	vmNamespace := in.vmNamespace()
	readable := vmNamespace
	if in.ControlPlane == "" {
		readable = "" // a Role needs an existing namespace
	}
	leases := allow(in.Infra.Namespace, "coordination.k8s.io", "leases", []string{"get", "list", "watch", "create", "update", "delete"})
	w := &workload{observed: []int32{9903}, lowest: 67, rules: []rule{leases}}
	if in.servesVMs() {
		w.rules = slices.Insert(in.vmRules(readable), 1, leases)
	}
	for _, i := range instances {
		text, err := in.dhcpConfig(i, vmNamespace)
		if err != nil {
			return nil, err
		}
		config := in.configMap(v1alpha1.ComponentDHCP, i.name, "config.yml", text)
		w.objects = append(w.objects, config)
		w.pods = append(w.pods, daemon(config, corev1.Container{
			Name: "coredhcp", Image: cmp.Or(spec.Image, in.Images.Oooi),
			Command:        []string{"/coredhcp", "--config", "/etc/coredhcp/config.yml", "--http", "$(POD_IP):9903"},
			Ports:          []corev1.ContainerPort{{Name: "dhcp", ContainerPort: 67, Protocol: corev1.ProtocolUDP}, tcpPort(v1alpha1.PortHealth, 9903)},
			ReadinessProbe: httpProbe("/readyz", v1alpha1.PortHealth, 2),
			LivenessProbe:  httpProbe("/healthz", v1alpha1.PortHealth, 10),
			Resources:      resources(spec.Resources, "20m", "32Mi"),
		}))
	}
	return w, nil
}

// vmRules returns rules for reading VMs and their networks; in all namespaces if readable, the namespace of the VMs, is empty.
func (in *Input) vmRules(readable string) []rule {
	rules := []rule{
		{readable, rbacv1.PolicyRule{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachineinstances", "virtualmachines"}, Verbs: readVerbs}},
		allow(readable, cni.Resource.Group, cni.Resource.Resource, readVerbs),
	}
	if network := in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace).Namespace; readable != "" && network != readable {
		rules = append(rules, allow(network, cni.Resource.Group, cni.Resource.Resource, readVerbs))
	}
	if readable != "" { // coredhcp must not create events in other namespaces
		rules = append(rules, allow(readable, "events.k8s.io", "events", []string{"create"}))
	}
	return rules
}

// servesVMs reports whether DHCP serves VMs. It serves only hosts if the hosted cluster's nodes are not VMs of this cluster.
func (in *Input) servesVMs() bool {
	dhcp := in.Infra.Spec.InfraComponents.DHCP
	if len(dhcp.Hosts) == 0 || dhcp.VMSelector != nil {
		return true
	}
	if c := in.cluster(); c != nil {
		return !c.ExternalVMs && (c.Platform == "" || c.Platform == objects.PlatformKubeVirt)
	}
	return in.HostedCluster.Name != ""
}

// vmNamespace returns the namespace of the VMs; empty for all namespaces, if it is unknown.
func (in *Input) vmNamespace() string {
	if in.MachineNamespace == "" && in.ControlPlane == "" && in.HostedCluster.Name != "" {
		return model.ControlPlaneNamespace(in.HostedCluster.Namespace, in.HostedCluster.Name)
	}
	return cmp.Or(in.MachineNamespace, in.ControlPlane)
}

// dhcpConfig returns the configuration of one replica, in CoreDHCP's YAML format.
func (in *Input) dhcpConfig(i instance, vmNamespace string) (string, error) {
	subnet, err := netip.ParsePrefix(in.Infra.Spec.NetworkConfig.CIDR)
	if err != nil || !subnet.Addr().Is4() {
		return "", fmt.Errorf("spec.networkConfig.cidr: %q is not an IPv4 network, which DHCP requires; specify an IPv4 network, or set "+
			"infraComponents.dhcp.enabled to false", in.Infra.Spec.NetworkConfig.CIDR)
	}
	clients, clientsErr := in.clientArguments(vmNamespace)
	leases, leasesErr := in.leaseArguments(i, subnet.Masked())
	options, optionsErr := in.dhcpOptions()
	if err := cmp.Or(clientsErr, leasesErr, optionsErr); err != nil {
		return "", err
	}
	plugins := []map[string]string{
		{"kubevirt": clients}, {"leasedb": leases},
		{"netmask": net.IP(net.CIDRMask(subnet.Bits(), 32)).String()},
	}
	dhcp := in.Infra.Spec.InfraComponents.DHCP
	if gateway := in.Infra.Spec.NetworkConfig.Gateway; gateway != "" && dhcp.SendsDefaultRoute() {
		plugins = append(plugins, map[string]string{"router": gateway})
	}
	if servers := in.resolvers(); servers != "" && dhcp.SendsDNS() {
		plugins = append(plugins, map[string]string{"dns": servers})
	}
	plugins = append(plugins, map[string]string{"options": options})
	text, err := yaml.Marshal(map[string]any{"server4": map[string]any{"listen": []string{"%" + vlanDevice}, "plugins": plugins}})
	if err != nil {
		return "", fmt.Errorf("encoding the configuration of %s: %w", i.name, err)
	}
	return string(text), nil
}

// clientArguments returns the arguments of the plugin kubevirt, which select the VMs that the server serves, and list the hosts.
func (in *Input) clientArguments(vmNamespace string) (string, error) {
	words, dhcp := []string{"network=" + in.Infra.Spec.NetworkConfig.NetworkAttachment(in.Infra.Namespace).String()}, in.Infra.Spec.InfraComponents.DHCP
	if vmNamespace != "" {
		words = append(words, "namespace="+vmNamespace)
	}
	words = append(words, "snapshot=/var/lib/coredhcp/machines.json")
	if dhcp.Image == "" { // earlier versions reject the argument
		words = append(words, "test-clients="+in.Infra.Namespace+"/"+in.Infra.Name)
	}
	for _, h := range dhcp.Hosts {
		word := "host=" + h.MAC
		if h.Hostname != "" {
			word += ",hostname=" + h.Hostname
		}
		if h.Address != "" {
			word += ",address=" + h.Address
		}
		words = append(words, word)
	}
	switch selector := dhcp.VMSelector; {
	case !in.servesVMs():
		words = append(words, "vms=false")
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
	case vmNamespace == "":
		return "", fmt.Errorf("spec.hostedClusterRef is required to select the VMs that DHCP serves; name the HostedCluster, or set infraComponents.dhcp.vmSelector")
	}
	return strings.Join(words, " "), nil
}

// leaseArguments returns the arguments of the plugin leasedb.
func (in *Input) leaseArguments(i instance, subnet netip.Prefix) (string, error) {
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
	for _, a := range in.protectedAddresses(i, subnet) {
		words = append(words, "protected="+a.String())
	}
	for _, text := range spec.Relays {
		relays, err := netip.ParsePrefix(string(text))
		if err != nil {
			return "", fmt.Errorf("spec.infraComponents.dhcp.relays: %q must be a network such as 192.0.2.0/24", text)
		}
		words = append(words, "relay="+relays.Masked().String())
	}
	return strings.Join(append(words, "server="+i.addresses[0].String(), "lease="+lease.String()), " "), nil
}

// protectedAddresses returns the addresses of the subnet that must never be leased, even if they are reserved for a
// VM: the gateway and the Infra's servers, except the replica's first address, which the argument server contains.
func (in *Input) protectedAddresses(i instance, subnet netip.Prefix) []netip.Addr {
	servers := append(in.serverAddresses(v1alpha1.ComponentDHCP, v1alpha1.ComponentDNS, v1alpha1.ComponentProxy), in.Infra.Spec.NetworkConfig.Gateway)
	servers = append(servers, in.floatingAddresses()...)
	list := slices.DeleteFunc(parseAddresses(servers...), func(a netip.Addr) bool { return !subnet.Contains(a) || a == i.addresses[0] })
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// serverAddresses returns the first address of each replica of the enabled components with these names.
func (in *Input) serverAddresses(names ...string) []string {
	var list []string
	for _, c := range componentsOf(in.Infra) {
		for _, i := range c.replicas {
			if c.enabled && slices.Contains(names, c.name) {
				list = append(list, string(i.IP))
			}
		}
	}
	return list
}

// resolvers returns the DNS servers for clients: the Infra's DNS if it is enabled, otherwise the upstream resolvers.
func (in *Input) resolvers() string {
	if !in.Infra.Spec.InfraComponents.DNS.IsEnabled() {
		return strings.Join(in.Infra.Spec.NetworkConfig.DNSServers, " ")
	}
	return strings.Join(in.serverAddresses(v1alpha1.ComponentDNS), " ")
}

// optionNames maps names of options in an Infra to names of the plugin options, where they differ.
var optionNames = map[string]string{
	"ntp-servers": "ntp", "domain-name": "domain", "domain-search": "search", "interface-mtu": "mtu", "broadcast-address": "broadcast",
	"host-name": "hostname", "classless-routes": "routes", "renew-timer": "t1", "rebind-timer": "t2",
}

// Codes of options that DHCP sends by default: ntp-servers (RFC 2132, section 8.3) and classless-routes (RFC 3442).
const (
	optionNTP    = 42
	optionRoutes = 121
)

// serverRoutes returns the routes, NETWORK>GATEWAY,..., to other IPv4 subnets with DNS servers or proxies, for clients without the
// gateway as default route.
func (in *Input) serverRoutes() string {
	config := in.Infra.Spec.NetworkConfig
	gateway, err := v1alpha1.ParseAddress(config.Gateway)
	if err != nil || !gateway.Is4() || in.Infra.Spec.InfraComponents.DHCP.SendsDefaultRoute() {
		return ""
	}
	servers := parseAddresses(append(in.serverAddresses(v1alpha1.ComponentDNS, v1alpha1.ComponentProxy), in.floatingAddresses()...)...)
	var routes []string
	for _, text := range config.AdditionalCIDRs {
		subnet, err := netip.ParsePrefix(string(text))
		if err == nil && slices.ContainsFunc(servers, func(a netip.Addr) bool { return a.Is4() && subnet.Contains(a) }) {
			routes = append(routes, subnet.Masked().String()+">"+gateway.String())
		}
	}
	return strings.Join(routes, ",")
}

// timeServers returns the IPv4 addresses of the proxy, separated by commas, if it forwards NTP; "" otherwise.
func (in *Input) timeServers() string {
	if len(in.ntpServers()) == 0 {
		return ""
	}
	return strings.Join(texts(slices.DeleteFunc(parseAddresses(in.floatingAddresses()...), netip.Addr.Is6)), ",")
}

// dhcpOptions returns the arguments of the plugin options: spec.infraComponents.dhcp.options, and the routes to servers and the NTP
// server unless these options contain them.
func (in *Input) dhcpOptions() (string, error) {
	var words []string
	routes, ntp := in.serverRoutes(), in.timeServers()
	for i, o := range in.Infra.Spec.InfraComponents.DHCP.Options {
		if strings.ContainsAny(o.Value, " \t\n") {
			return "", fmt.Errorf("spec.infraComponents.dhcp.options[%d]: white space in the value %q is not supported by CoreDHCP; specify the option by "+
				"code, with a value such as hex:0a0b", i, o.Value)
		}
		if o.Name == "classless-routes" || o.Code != nil && *o.Code == optionRoutes {
			routes = ""
		}
		if o.Name == "ntp-servers" || o.Name == "ntp" || o.Code != nil && *o.Code == optionNTP {
			ntp = ""
		}
		switch {
		case o.Code != nil && strings.Contains(o.Value, ":"):
			words = append(words, fmt.Sprintf("option=%d:%s", *o.Code, o.Value))
		case o.Code != nil:
			return "", fmt.Errorf("spec.infraComponents.dhcp.options[%d]: the value of option %d requires a type prefix, such as ip:%s", i, *o.Code, o.Value)
		default:
			words = append(words, cmp.Or(optionNames[o.Name], o.Name)+"="+o.Value)
		}
	}
	if ntp != "" {
		words = append(words, "ntp="+ntp)
	}
	if routes != "" {
		words = append(words, "routes="+routes)
	}
	return strings.Join(words, " "), nil
}
