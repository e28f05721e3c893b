package faults

func networkFaults() []Fault {
	return []Fault{
		{Name: "DHCP range overlaps another Infra's", Break: func(s *Site) {
			s.Add("apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: Infra\nmetadata: {name: other, namespace: $ns}\nspec:\n" +
				"  networkConfig: {cidr: $net.0/24, gateway: $net.1, networkAttachmentDefinition: $vlan}\n" +
				"  infraComponents: {dhcp: {serverIP: $net.250, rangeStart: $net.90, rangeEnd: $net.120}, dns: {enabled: false}, proxy: {enabled: false}}\n")
		}, Want: []string{"INF-001 fail"}},
		{Name: "NetworkAttachmentDefinition does not exist", Break: removeNetwork, Want: []string{"NET-001 fail"}},
		{Name: "network has an ipam", Break: networkConfig(`{"type": "bridge", "ipam": {"type": "whereabouts"}}`), Want: []string{"NET-002 fail"}},
		{
			Name: "OVN-Kubernetes network has subnets", Break: networkConfig(`{"type": "ovn-k8s-cni-overlay", "topology": "localnet", "subnets": "192.0.2.0/24"}`),
			Want: []string{"NET-002 fail"},
		},
		{Name: "network configuration is invalid", Break: networkConfig(`{`), Want: []string{"NET-002 fail"}},
		{Name: "pod has another address", Break: func(s *Site) {
			s.Patch(podKind, "$ns", "demo-dns-0", `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": "[{\"name\": \"x\", \"ips\": [\"$net.77\"]}]"}}}`)
		}, Want: []string{"NET-003 fail"}},
		{Name: "pod has no network status", Break: func(s *Site) {
			s.Patch(podKind, "$ns", "demo-proxy-0", `{"metadata": {"annotations": {"k8s.v1.cni.cncf.io/network-status": null}}}`)
		}, Want: []string{"NET-003 fail"}},
		{Name: "VM has the gateway's address", Break: func(s *Site) {
			s.Patch(machineKind, "$ns-demo", "worker-a", `{"status": {"interfaces": [{"name": "vlan", "ipAddress": "$net.1", "ipAddresses": ["$net.1", "fe80::1"]}]}}`)
		}, Want: []string{"NET-004 fail"}},
		{Name: "VM has the proxy's address", Break: func(s *Site) {
			s.Patch(machineKind, "$ns-demo", "worker-a", `{"status": {"interfaces": [{"name": "vlan", "ipAddress": "$net.4", "ipAddresses": ["$net.4"]}]}}`)
		}, Want: []string{"NET-004 fail"}},
		{Name: "two VMs have one address", Break: func(s *Site) { duplicateAddress(s) }, Want: []string{"NET-004 fail"}},
	}
}

func removeNetwork(s *Site) { s.Remove(nadKind, "$ns", "$vlan") }

// networkConfig returns a function that replaces the configuration of the VMs' network.
func networkConfig(config string) func(*Site) {
	return func(s *Site) { s.Patch(nadKind, "$ns", "$vlan", `{"spec": {"config": `+toJSON(config)+`}}`) }
}

// duplicateAddress creates two VMs with one address.
func duplicateAddress(s *Site) {
	for _, name := range []string{"worker-x", "worker-y"} {
		s.Add("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: " + name + ", namespace: $ns-demo}\nspec:\n  domain: {devices: {interfaces: [{name: vlan, bridge: {}}]}}\n" +
			"  networks: [{name: vlan, multus: {networkName: $vmnet}}]\nstatus: {phase: Running, interfaces: [{name: vlan, ipAddress: $net.60, ipAddresses: [$net.60]}]}\n")
	}
}
