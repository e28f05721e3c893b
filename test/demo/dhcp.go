package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// dhcpConfig is the configuration of coredhcp.
const dhcpConfig = `server4:
  listen: ["%%%[1]s"]
  plugins:
  - kubevirt: network=clusters-demo/vlan51 namespace=clusters-demo infra-id=demo-x7k2p
      kubeconfig=%[4]s
  - leasedb: store=kubernetes namespace=clusters pool=clusters.demo-vlan51
      kubeconfig=%[4]s
      cidr=198.18.51.0/24 range=198.18.51.100-198.18.51.199 server=%[2]s
  - netmask: 255.255.255.0
  - router: 198.18.51.1
  - dns: %[3]s
  - options: domain=demo.lab.example.com
`

// dhcpHTTP is the address of coredhcp's health, metrics and state endpoints.
const dhcpHTTP = "127.0.0.1:9903"

// startDHCP starts coredhcp on the second VLAN, waits until it is ready, and prints the commands.
func (t *transcript) startDHCP(ctx context.Context, c *clusters, dir, coredhcp string) (*process, error) {
	if err := t.addVLAN(ctx, c); err != nil {
		return nil, err
	}
	kubeconfig, err := c.management.UserKubeconfig("coredhcp")
	if err != nil {
		return nil, err
	}
	text := fmt.Sprintf(dhcpConfig, bridge, bridgeDHCP, bridgeDNS, kubeconfig)
	path := filepath.Join(dir, "dhcp.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration of coredhcp: %w", err)
	}
	t.printf("$ cat dhcp.yml\n%s$ coredhcp --config dhcp.yml --http %s &\n", text, dhcpHTTP)
	p, err := startProcess(dir, "coredhcp", coredhcp, "--config", path, "--http", dhcpHTTP)
	if err != nil {
		return nil, err
	}
	if err := awaitDHCP(ctx, p); err != nil {
		p.stop()
		return nil, p.withLog(err)
	}
	return p, nil
}

// addVLAN applies the Infra of the second VLAN and a VM on it, and waits until DNS answers on the VLAN.
func (t *transcript) addVLAN(ctx context.Context, c *clusters) error {
	t.printf("$ kubectl apply -f - <<EOF\n%s\n---\n%s\nEOF\n", strings.TrimSpace(workerInstance), strings.TrimSpace(secondInfra))
	if err := c.management.ApplyYAML(ctx, []byte(workerInstance)); err != nil {
		return err
	}
	answers := func(ctx context.Context) bool {
		reply, err := ask(ctx, net.JoinHostPort(bridgeDNS, "53"), bridgeDHCP, "api.demo.lab.example.com", dns.TypeA)
		return err == nil && reply.Authoritative && len(reply.Answer) > 0
	}
	_, err := follow(ctx, c.management, secondInfra, "the DNS on the VLAN answering", answers)
	return err
}

// awaitDHCP waits until coredhcp is ready: it has read VMs and leases.
func awaitDHCP(ctx context.Context, p *process) error {
	client := &http.Client{Timeout: time.Second}
	for {
		if ready(ctx, client, "http://"+dhcpHTTP+"/readyz") {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("coredhcp exited: %w", p.err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for coredhcp to be ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ready reports whether a readiness endpoint returns 200.
func ready(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// showDHCP boots a VM of KubeVirt, and a client without a VirtualMachineInstance.
func (t *transcript) showDHCP(ctx context.Context, c *clusters, p *proxy, v *vlan) error {
	// This client starts first, because it takes a while to give up.
	if err := v.unknown.startDHClient(time.Second, "-1"); err != nil {
		return err
	}
	t.printf("\n# The VM boots and requests an address.\n")
	address, server, err := t.boot(ctx, v.worker, dhcpAnswer{network: "198.18.51.0/24", dns: bridgeDNS, name: workerName})
	if err != nil {
		return err
	}
	if err := t.showLeases(ctx, c, address); err != nil {
		return err
	}
	t.printf("\n# It queries the DNS server in its lease, and connects: the proxy has an address on this VLAN, too.\n")
	const name = "api.demo.lab.example.com"
	t.printf("vm$ dig @%s %s A\n", server, name)
	answers, err := t.answer(ctx, v.worker.CommandLine("dig", "@"+server, name, "A"), only(bridgeProxy))
	if err != nil {
		return err
	}
	if len(answers) > 0 {
		api := visit{url: "https://" + name + ":6443/version", trust: "api.crt", reply: `"gitVersion": "v`}
		if err := t.connect(ctx, p, v.worker, api, rdata(answers[0])); err != nil {
			return err
		}
	}
	return t.showUnknownClient(ctx, v.unknown)
}

// A dhcpAnswer is what DHCP must give a VM: an address of a network, the DNS server and the host name.
type dhcpAnswer struct{ network, dns, name string }

// boot runs the DHCP client until it has a lease, and returns the address and the DNS server.
func (t *transcript) boot(ctx context.Context, m *virtualMachine, want dhcpAnswer) (address, server string, err error) {
	t.printf("vm$ dhclient -v eth0\n")
	if err := m.startDHClient(followDeadline); err != nil {
		return "", "", err
	}
	const bound = "bound to "
	line, before, err := m.awaitLine(ctx, bound)
	if err != nil {
		return "", "", err
	}
	t.packets(before)
	address, _, _ = strings.Cut(strings.TrimPrefix(line, bound), " ")
	t.verdict(line, inNetwork(want.network).data(address))
	t.printf("vm$ grep -e domain-name-servers -e host-name dhclient.leases\n")
	server, err = m.leaseOption("domain-name-servers")
	if err != nil {
		return "", "", err
	}
	t.verdict("option domain-name-servers "+server+";", server == want.dns)
	name, err := m.leaseOption("host-name")
	if err != nil {
		return "", "", err
	}
	t.verdict("option host-name "+name+";", name == strconv.Quote(want.name))
	return address, server, nil
}

// packets prints the lines of a client's log about packets.
func (t *transcript) packets(lines []string) {
	for _, line := range lines {
		t.printf("  %s\n", line)
	}
}

// showLeases prints the Lease objects as kubectl does, and checks that address is bound to the VM.
func (t *transcript) showLeases(ctx context.Context, c *clusters, address string) error {
	labels := []string{"leasedb.densityops.com/mac", "leasedb.densityops.com/state"}
	t.printf("$ kubectl -n clusters get leases -L %s\n", strings.Join(labels, ","))
	lines, err := getTable(ctx, c.management, "/apis/coordination.k8s.io/v1/namespaces/clusters/leases", labels...)
	if err != nil {
		return err
	}
	t.printf("  %s\n", lines[0])
	text := strings.Join(lines[1:], "; ")
	fields := strings.Fields(text)
	right := len(lines) == 2 && len(fields) == 5
	if right {
		fields[2] = ""                                 // age
		mac := strings.ReplaceAll(workerMAC, ":", "-") // label values cannot have colons
		right = slices.Equal(fields, []string{"clusters.demo-vlan51." + address, "clusters-demo/" + workerName + "/vlan", "", mac, "bound"})
	}
	t.verdict(text, right)
	return nil
}

// connect runs curl in a VM.
func (t *transcript) connect(ctx context.Context, p *proxy, m *virtualMachine, v visit, address string) error {
	args, err := v.arguments(address)
	if err != nil {
		return err
	}
	t.printf("vm$ curl %s\n", strings.Join(args, " "))
	reply, right, err := curl(ctx, p.dir, v.reply, args, m.CommandLine()...)
	if err != nil {
		return err
	}
	t.verdict(reply, right)
	return nil
}

// showUnknownClient checks that a client without a VirtualMachineInstance gets no answer, and that its packets are
// counted.
func (t *transcript) showUnknownClient(ctx context.Context, m *virtualMachine) error {
	t.printf("\n# A client on the VLAN whose MAC address no VirtualMachineInstance has: DHCP counts its packets, and does not answer.\nunknown$ dhclient -v -1 eth0\n")
	const noOffers = "No DHCPOFFERS received."
	line, before, err := m.awaitLine(ctx, noOffers)
	if err != nil {
		return err
	}
	t.packets(before)
	t.verdict(line, !slices.ContainsFunc(before, func(s string) bool { return !strings.HasPrefix(s, "DHCPDISCOVER") }))

	const metric = "coredhcp_kubevirt_unknown_total"
	t.printf("$ curl -s http://%s/metrics | grep ^%s\n", dhcpHTTP, metric)
	metrics, err := output(ctx, "curl", "--silent", "--show-error", "--max-time", "5", "http://"+dhcpHTTP+"/metrics")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(metrics), "\n"+metric+" ")
	text, _, _ := strings.Cut(rest, "\n")
	count, err := strconv.Atoi(text)
	t.verdict(metric+" "+text, err == nil && count > 0)
	return nil
}

// workerName is the name of the VM on the second VLAN.
const workerName = "demo-vlan51-6k8d2"

// workerInstance is the VirtualMachineInstance of a worker node of cluster demo.
const workerInstance = `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: ` + workerName + `, namespace: clusters-demo, labels: {hypershift.openshift.io/infra-id: demo-x7k2p}}
spec:
  networks: [{name: vlan, multus: {networkName: clusters-demo/vlan51}}]
  domain: {devices: {interfaces: [{name: vlan, bridge: {}, macAddress: "` + workerMAC + `"}]}}
`

// secondInfra is the Infra of a second VLAN of cluster demo, with the same proxy.
const secondInfra = `
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

// withoutDHCP is printed if DHCP is skipped, with the reason.
const withoutDHCP = `
# DHCP is skipped: it needs a bridge and network namespaces, which cannot be created here: %v.
`
