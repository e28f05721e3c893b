package render

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/densityops/oooi/api/v1alpha1"
)

// dns returns the workload with CoreDNS.
func dns(in *Input, instances []instance) (*workload, error) {
	const tcp = "dns-tcp"
	spec := in.Infra.Spec.InfraComponents.DNS
	config := in.configMap(v1alpha1.ComponentDNS, in.name(v1alpha1.ComponentDNS), "Corefile", in.corefile())
	pod := daemon(config, corev1.Container{
		Name: "coredns", Image: cmp.Or(spec.Image, in.Images.Oooi), Command: []string{"/coredns", "-conf", "/etc/coredns/Corefile", "-http", "$(POD_IP):9908"},
		Ports: []corev1.ContainerPort{
			{Name: v1alpha1.PortDNS, ContainerPort: 53, Protocol: corev1.ProtocolUDP}, tcpPort(tcp, 53), tcpPort(v1alpha1.PortHealth, 8181),
			tcpPort("live", 8080), tcpPort("metrics", 9153), tcpPort(v1alpha1.PortState, 9908),
		},
		ReadinessProbe: httpProbe("/ready", v1alpha1.PortHealth, 2),
		LivenessProbe:  httpProbe("/health", "live", 10),
		Resources:      resources(spec.Resources, "50m", "48Mi"),
	})
	pod.DNSPolicy = corev1.DNSDefault // not the cluster DNS, which may forward to this DNS, so that unknown names would loop
	// The ProxyServer is read even if the proxy is disabled; otherwise disabling the proxy would restart DNS.
	rules := append(in.readRules(), allow(in.Infra.Namespace, v1alpha1.GroupName, "proxyservers", readVerbs, in.ProxyServer.GetName()))
	if spec.VMNames.IsEnabled() {
		rules = append(rules, allow(in.Infra.Namespace, "coordination.k8s.io", "leases", readVerbs))
	}
	return &workload{
		objects: []runtime.Object{config}, rules: rules, observed: []int32{8080, 8181, 9153, 9908}, lowest: 53,
		ports: []corev1.ServicePort{
			{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString(v1alpha1.PortDNS)},
			{Name: tcp, Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(tcp)},
		},
		pods: slices.Repeat([]corev1.PodSpec{pod}, len(instances)),
	}, nil
}

// corefile returns the Corefile. It has a server block for each view, bound to the interface on the VLAN or in the pod network.
func (in *Input) corefile() string {
	const metrics = "    prometheus {$POD_IP}:9153\n"
	// VMs must not resolve names of Services of the management cluster.
	vlan := in.serverBlock(vlanDevice, "vlan", metrics+"    template IN ANY cluster.local {\n        rcode REFUSED\n    }\n", in.otherNames())
	return vlan + "\n" + in.serverBlock(podDevice, "pod", "    health {$POD_IP}:8080\n    ready {$POD_IP}:8181\n"+metrics, in.forward())
}

// forward returns the plugin that forwards names to the upstream resolvers.
func (in *Input) forward() string {
	return "    forward . " + cmp.Or(strings.Join(in.Infra.Spec.NetworkConfig.DNSServers, " "), "/etc/resolv.conf") + "\n"
}

// otherNames returns the plugin that answers VMs' queries for names that no other plugin answers. If egress allows all names, they
// resolve to the proxy.
func (in *Input) otherNames() string {
	rcode, addresses := "NXDOMAIN", ""
	if in.Infra.Spec.Egress.AllowsAll() {
		if i := in.Snapshot.Infra(in.key()); i != nil && i.Proxy != nil {
			rcode, addresses = "NOERROR", addressTemplates(i.Proxy.VLAN)
		}
	}
	if rcode == "NXDOMAIN" && in.Infra.Spec.InfraComponents.DNS.Forward != v1alpha1.DNSForwardDeny {
		return in.forward()
	}
	// Clients cache the response for the last number of seconds (RFC 2308).
	const authority = ". 60 IN SOA ns.invalid. hostmaster.invalid. 1 7200 1800 86400 5"
	return addresses + fmt.Sprintf("    template IN ANY {\n        rcode %s\n        authority %q\n    }\n", rcode, authority)
}

// addressTemplates returns the plugins that resolve all names to the addresses.
func addressTemplates(addresses []netip.Addr) string {
	var out strings.Builder
	for _, kind := range []struct {
		qtype string
		is    func(netip.Addr) bool
	}{{"A", netip.Addr.Is4}, {"AAAA", netip.Addr.Is6}} {
		list := slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !kind.is(a) })
		if len(list) == 0 {
			continue
		}
		fmt.Fprintf(&out, "    template IN %s {\n", kind.qtype)
		for _, a := range list {
			fmt.Fprintf(&out, "        answer \"{{ .Name }} 30 IN %s %s\"\n", kind.qtype, a)
		}
		out.WriteString("    }\n")
	}
	return out.String()
}

// serverBlock returns the server block of a view, with additional plugins before and after oooi's plugins.
func (in *Input) serverBlock(device, view, before, after string) string {
	hosted := ""
	if in.HostedCluster.Name != "" && in.ControlPlane != "" {
		hosted = in.HostedCluster.String()
	}
	leases := ""
	if in.Infra.Spec.InfraComponents.DNS.VMNames.IsEnabled() {
		leases = in.key()
	}
	var views strings.Builder
	for _, property := range [][2]string{
		{"infra", in.key()}, {"hostedcluster", hosted}, {"proxyserver", in.proxyKey()}, {"leases", leases},
		{"management", strings.Join(in.Management, " ")}, {"view", view},
		{"guard", strings.Join(in.guardedZones(), " ")}, {"snapshot", "/var/lib/coredns/snapshot.json"},
	} {
		if property[1] != "" {
			fmt.Fprintf(&views, "        %s %s\n", property[0], property[1])
		}
	}
	return fmt.Sprintf(".:53 {\n    bind %s\n    errors\n%s    hcpviews {\n%s    }\n    hcpapps\n    cache 30\n%s}\n", device, before, &views, after)
}

// guardedZones returns the known domains of the hosted cluster and its hostnames outside of them. CoreDNS passes on other
// names even before it has read the objects, which define the names that it answers. A hostname is a separate
// zone, without its siblings.
func (in *Input) guardedZones() []string {
	c := in.cluster()
	if c == nil {
		return nil
	}
	all := slices.Concat(c.Domains, c.AppsDomains, c.AppsNames)
	for _, h := range c.Hostnames {
		all = append(all, h.Name)
	}
	if len(all) > 0 {
		all = append(all, in.generatedHosts()...)
	}
	slices.SortFunc(all, func(a, b string) int {
		return cmp.Or(strings.Count(a, ".")-strings.Count(b, "."), strings.Compare(a, b))
	})
	var zones []string
	for _, zone := range all {
		if !slices.ContainsFunc(zones, func(known string) bool { return zone == known || strings.HasSuffix(zone, "."+known) }) {
			zones = append(zones, zone)
		}
	}
	return zones
}

// generatedHosts returns the hostnames that OpenShift generates for HyperShift's Routes, which may be created after the
// Corefile. HyperShift shortens labels that reach the maximum length, so those hosts are unknown.
func (in *Input) generatedHosts() []string {
	var hosts []string
	for _, domain := range in.Management {
		if !strings.HasPrefix(domain, "apps.") || in.ControlPlane == "" {
			continue
		}
		for _, route := range []string{"ignition-server", "konnectivity-server", "oauth"} {
			if label := route + "-" + in.ControlPlane; len(label) < validation.DNS1123LabelMaxLength {
				hosts = append(hosts, label+"."+domain)
			}
		}
	}
	return hosts
}
