package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/miekg/dns"
	coordinationv1 "k8s.io/api/coordination/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

// The second VLAN of cluster demo, for DHCP. It is a bridge, because loopback lacks broadcasts. DNS, proxy and DHCP listen on
// addresses of the bridge.
const (
	bridge      = "vlan51"
	bridgeDNS   = "198.18.51.2"
	bridgeProxy = "198.18.51.3"
	bridgeDHCP  = "198.18.51.4"

	workerName, workerMAC = "demo-vlan51-6k8d2", "02:00:c6:12:33:01"
	unknownMAC            = "02:00:c6:12:33:02" // of a client without a VirtualMachineInstance
)

// dhcpConfig is the configuration of coredhcp.
const dhcpConfig = `server4:
  listen: ["%%` + bridge + `"]
  plugins:
  - kubevirt: network=clusters-demo/vlan51 namespace=clusters-demo infra-id=demo-x7k2p
      kubeconfig=%[1]s
  - leasedb: store=kubernetes namespace=clusters pool=clusters.demo-vlan51
      kubeconfig=%[1]s
      cidr=198.18.51.0/24 range=198.18.51.100-198.18.51.199 server=` + bridgeDHCP + `
  - netmask: 255.255.255.0
  - router: 198.18.51.1
  - dns: ` + bridgeDNS + `
  - options: domain=` + domain + `
`

// workerInstance is the VirtualMachineInstance of a worker node of cluster demo, and secondInfra the Infra of a second VLAN with
// the same proxy.
const (
	workerInstance = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: ` + workerName + `, namespace: clusters-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p}}
spec:
  networks: [{name: vlan, multus: {networkName: clusters-demo/vlan51}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: "` + workerMAC + `"}]}}
`
	secondInfra = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo-vlan51, namespace: clusters}
spec:
  hostedClusterRef: {name: demo}
  networkConfig: {cidr: 198.18.51.0/24, gateway: 198.18.51.1, networkAttachmentDefinition: clusters-demo/vlan51}
  infraComponents:
    dhcp: {serverIP: ` + bridgeDHCP + `, rangeStart: 198.18.51.100, rangeEnd: 198.18.51.199}
    dns: {serverIP: ` + bridgeDNS + `}
    proxy: {serverIP: ` + bridgeProxy + `, internalProxyService: demo-proxy}
`
)

// startDHCP adds the second VLAN, and starts coredhcp on it.
func (l *loopbackShow) startDHCP() {
	l.printf("\n# A second VLAN of cluster demo, a bridge, with a VM: a network namespace whose interface has the MAC address of a VirtualMachineInstance.\n")
	l.printf("$ kubectl apply -f - <<EOF\n%s\n---\n%s\nEOF\n", strings.TrimSpace(workerInstance), strings.TrimSpace(secondInfra))
	l.management.MustApply(l, workerInstance)
	l.applyAndWait(l.management, secondInfra, "the DNS on the VLAN answering", func(ctx context.Context) bool {
		return lab.Resolve(ctx, bridgeDHCP, bridgeDNS+":53", "api."+domain, dns.TypeA) == bridgeProxy
	})
	text := fmt.Sprintf(dhcpConfig, l.management.Kubeconfig())
	l.printf("$ cat dhcp.yml\n%s$ coredhcp --config dhcp.yml --http %s &\n", text, dhcpHTTP)
	l.daemon(l.coredhcp, "--config", l.write("dhcp.yml", text), "--http", dhcpHTTP)
	l.await("coredhcp to be ready", func() (bool, string) {
		status, _ := lab.Get(l, "http://"+dhcpHTTP+"/readyz")
		return status == http.StatusOK, http.StatusText(status)
	})
}

// showDHCP boots a VM of KubeVirt, and a client without a VirtualMachineInstance.
func (l *loopbackShow) showDHCP() {
	l.unknown.client = l.unknown.StartDHCP(l, "timeout 1;", "-1") // it starts first, because it takes a while to give up
	l.printf("\n# The VM boots and requests an address.\n")
	address, server := l.worker.boot("198.18.51.0/24", bridgeDNS, workerName)
	l.showLeases(address)
	l.printf("\n# It queries the DNS server in its lease, and connects: the proxy has an address on this VLAN, too.\n")
	vm := client{show: l.show, prompt: "vm$", through: l.worker.CommandLine(), server: []string{"@" + server}}
	vm.visit(visit{url: "https://api." + domain + ":6443/version", trust: "api.crt", dns: only(bridgeProxy), reply: `"gitVersion": "v`})

	l.printf("\n# A client on the VLAN whose MAC address no VirtualMachineInstance has: DHCP counts its packets, and does not answer.\nunknown$ dhclient -v -1 eth0\n")
	line, packets := l.unknown.awaitLine("No DHCPOFFERS received.")
	l.verdict(line, !slices.ContainsFunc(packets, func(s string) bool { return !strings.HasPrefix(s, "DHCPDISCOVER") }))
	const metric = "coredhcp_kubevirt_unknown_total"
	l.printf("$ curl -s http://%s/metrics | grep ^%s\n", dhcpHTTP, metric)
	_, metrics := lab.Get(l, "http://"+dhcpHTTP+"/metrics")
	_, rest, _ := strings.Cut(string(metrics), "\n"+metric+" ")
	text, _, _ := strings.Cut(rest, "\n")
	count, err := strconv.Atoi(text)
	l.verdict(metric+" "+text, err == nil && count > 0)
}

// showLeases prints the Lease objects as kubectl does, and checks that the address is bound to the VM.
func (l *loopbackShow) showLeases(address string) {
	const mac, state = "leasedb.densityops.com/mac", "leasedb.densityops.com/state"
	l.printf("$ kubectl -n clusters get leases -L %s,%s\n", mac, state)
	var leases coordinationv1.LeaseList
	l.check(l.management.Client(l).List(l.ctx, &leases, kube.InNamespace("clusters")))
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tHOLDER\tAGE\tMAC\tSTATE")
	right := len(leases.Items) == 1
	for _, lease := range leases.Items {
		holder := *lease.Spec.HolderIdentity
		fmt.Fprintf(w, "%s\t%s\t%ds\t%s\t%s\n", lease.Name, holder, int(time.Since(lease.CreationTimestamp.Time).Seconds()), lease.Labels[mac], lease.Labels[state])
		right = right && lease.Name == "clusters.demo-vlan51."+address && holder == "clusters-demo/"+workerName+"/vlan" && lease.Labels[state] == "bound" &&
			lease.Labels[mac] == strings.ReplaceAll(workerMAC, ":", "-") // label values cannot have colons
	}
	l.check(w.Flush())
	head, rows, _ := strings.Cut(strings.TrimSpace(text.String()), "\n")
	l.printf("  %s\n", head)
	l.verdict(strings.ReplaceAll(rows, "\n", "; "), right)
}
