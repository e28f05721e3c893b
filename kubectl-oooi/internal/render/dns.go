package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/densityops/oooi/api/v1alpha1"
)

// dns returns a StatefulSet with CoreDNS for each replica.
func dns(in *Input) ([]runtime.Object, error) {
	spec := in.Infra.Spec.InfraComponents.DNS
	instances, err := in.instances(v1alpha1.ComponentDNS, spec.EffectiveInstances())
	if err != nil {
		return nil, err
	}
	const component = v1alpha1.ComponentDNS
	name := in.name(component)
	config := in.configMap(component, name, map[string]string{"Corefile": in.corefile()})
	list := []runtime.Object{config}
	list = append(list, in.rights(component, in.readRules()...)...)
	list = append(list, service(in.meta(component, name), in.labels(component),
		corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromString(v1alpha1.PortDNS)},
		corev1.ServicePort{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("dns-tcp")},
	))
	for _, i := range instances {
		nad, network, err := in.attachment(component, i)
		if err != nil {
			return nil, err
		}
		set, err := in.statefulSet(workload{
			component: component, instance: i, network: network, port: 53,
			spec: corev1.PodSpec{
				// Not the cluster DNS: it may forward to this DNS, so that unknown names would loop.
				DNSPolicy: corev1.DNSDefault,
				Affinity:  in.spread(component),
				Containers: []corev1.Container{restrictedContainer(corev1.Container{
					Name: "coredns", Image: cmp.Or(spec.Image, in.Images.Oooi), Command: []string{"/coredns", "-conf", "/etc/coredns/Corefile", "-http", "$(POD_IP):9908"},
					Env: []corev1.EnvVar{podIP},
					Ports: []corev1.ContainerPort{
						{Name: v1alpha1.PortDNS, ContainerPort: 53, Protocol: corev1.ProtocolUDP},
						{Name: "dns-tcp", ContainerPort: 53, Protocol: corev1.ProtocolTCP},
						{Name: v1alpha1.PortHealth, ContainerPort: 8181, Protocol: corev1.ProtocolTCP},
						{Name: "live", ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
						{Name: "metrics", ContainerPort: 9153, Protocol: corev1.ProtocolTCP},
						{Name: v1alpha1.PortState, ContainerPort: 9908, Protocol: corev1.ProtocolTCP},
					},
					ReadinessProbe: httpProbe("/ready", v1alpha1.PortHealth, 2),
					LivenessProbe:  httpProbe("/health", "live", 10),
					Resources:      resources(spec.Resources, "50m", "64Mi"),
					VolumeMounts: []corev1.VolumeMount{
						{Name: "config", MountPath: "/etc/coredns", ReadOnly: true}, {Name: "state", MountPath: "/var/lib/coredns"}, tokenMount,
					},
				})},
				Volumes: []corev1.Volume{configVolume(config.Name), emptyDir("state", false), tokenVolume()},
			},
		})
		if err != nil {
			return nil, err
		}
		list = append(list, nad, set)
	}
	return append(list, in.disruptionBudget(component, len(instances))...), nil
}

// corefile returns the Corefile. It has a server block for each view, bound to the interface on the VLAN and to that
// in the pod network.
func (in *Input) corefile() string {
	var b strings.Builder
	upstream := "/etc/resolv.conf"
	if servers := in.Infra.Spec.NetworkConfig.DNSServers; len(servers) > 0 {
		upstream = strings.Join(servers, " ")
	}
	guarded := in.guardedZones()
	block := func(device, view string) {
		fmt.Fprintf(&b, ".:53 {\n    bind %s\n    errors\n", device)
		if view == "pod" {
			b.WriteString("    health {$POD_IP}:8080\n    ready {$POD_IP}:8181\n")
		}
		b.WriteString("    prometheus {$POD_IP}:9153\n")
		if view == "vlan" {
			// VMs must not resolve names of Services of the management cluster.
			b.WriteString("    template IN ANY cluster.local {\n        rcode REFUSED\n    }\n")
		}
		fmt.Fprintf(&b, "    hcpviews {\n        infra %s\n", in.key())
		if in.HostedCluster.Name != "" && in.ControlPlane != "" {
			fmt.Fprintf(&b, "        hostedcluster %s\n", in.HostedCluster)
		}
		if len(in.Management) > 0 {
			fmt.Fprintf(&b, "        management %s\n", strings.Join(in.Management, " "))
		}
		fmt.Fprintf(&b, "        view %s\n", view)
		if len(guarded) > 0 {
			fmt.Fprintf(&b, "        guard %s\n", strings.Join(guarded, " "))
		}
		fmt.Fprintf(&b, "        snapshot /var/lib/coredns/snapshot.json\n    }\n    hcpapps\n    cache 30\n    forward . %s\n}\n", upstream)
	}
	block(vlanDevice, "vlan")
	b.WriteString("\n")
	block(podDevice, "pod")
	return b.String()
}

// guardedZones returns the known domains of the hosted cluster and its hostnames outside of them. CoreDNS passes on other
// names even before it has read the objects, which then define which names it answers. A hostname is a zone of its own,
// without its siblings.
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

// generatedHosts returns the hostnames that OpenShift generates for HyperShift's Routes, because these may be created
// after the Corefile. HyperShift shortens labels of the maximum length, so their hosts are unknown.
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
