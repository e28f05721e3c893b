package dns_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/dhcplease"
	"github.com/densityops/oooi/test/lab"
)

const recordsCorefile = `.:$DNS {
	errors
	prometheus 127.0.0.1:$METRICS
	hcpviews {
		kubeconfig $KUBECONFIG
		infra clusters/blue
		proxyserver clusters/blue
		leases clusters/blue
	}
	hcpapps
	cache
	forward . $UPSTREAM
}`

// infraWithRecords returns blue's Infra with records and names of VMs.
func infraWithRecords(records string) string {
	return blue.infra("spec: {infraComponents: {dhcp: {serverIP: 127.50.0.4}, dns: {serverIP: 127.50.0.2, vmNames: {enabled: true}, records: [" + records + "]}}}")
}

// backendOfBlue returns a ProxyServer of blue's Infra, one of whose backends has the names.
func backendOfBlue(names string) string {
	first, others, _ := strings.Cut(names, ", ")
	return blue.site().ProxyServer(fmt.Sprintf("spec: {networkConfig: {serverIP: %s}, backends: [{name: registry, hostname: %s, alternateHostnames: [%s], port: 443, "+
		"targetService: registry, targetPort: 443, targetNamespace: clusters, protocol: TLS}]}", blue.proxy, first, others))
}

// leaseYAML returns the Lease that DHCP writes for a VM.
func leaseYAML(t *testing.T, vm, address string) string {
	t.Helper()
	o := dhcplease.Object("clusters.blue", time.Hour, dhcplease.Binding{
		Addr: netip.MustParseAddr(address), Holder: "clusters-blue/" + vm + "/vlan", MAC: "02:00:00:00:00:01", Hostname: vm, Used: time.Now(),
	})
	o.APIVersion, o.Kind, o.Namespace = "coordination.k8s.io/v1", "Lease", "clusters"
	data, err := yaml.Marshal(o)
	lab.Must(t, err)
	return string(data)
}

// TestRecordsAndVMNames changes records and leases, and queries their names.
func TestRecordsAndVMNames(t *testing.T) {
	cp := management.Get(t)
	cp.Create(t, blue.yaml())
	cp.MustApply(t, infraWithRecords(`{name: nfs.blue.lab.example.com, type: A, values: [127.50.0.9], ttl: 60},
		{name: files.blue.lab.example.com, type: CNAME, values: [nfs.blue.lab.example.com]}, {name: docs.blue.lab.example.com, type: CNAME, values: [docs.example.org]},
		{name: nothing.blue.lab.example.com, type: CNAME, values: [missing.blue.lab.example.com]}, {name: one.blue.lab.example.com, type: CNAME, values: [two.blue.lab.example.com]},
		{name: two.blue.lab.example.com, type: CNAME, values: [one.blue.lab.example.com]}, {name: vm.blue.lab.example.com, type: CNAME, values: [worker-0.blue.lab.example.com]},
		{name: text.blue.lab.example.com, type: TXT, values: ["`+strings.Repeat("x", 300)+`"]}, {name: api.blue.lab.example.com, type: A, values: [127.50.0.66]}`))
	cp.Create(t, backendOfBlue("registry.blue.lab.example.com, mirror.example.org, api.blue.lab.example.com, nfs.blue.lab.example.com")+"---\n"+
		leaseYAML(t, "worker-0", "127.50.0.20"))
	c := startCoreDNS(t, recordsCorefile, map[string]string{"KUBECONFIG": cp.Kubeconfig(), "UPSTREAM": newUpstreamResolver(t).address})
	name := func(want, name string, qtype uint16) question {
		return question{from: blueVM, name: name, want: want, qtype: qtype}
	}
	vm := func(want, label string) question { return name(want, label+".blue."+domain, dns.TypeA) }
	pointer := func(want, address string) question {
		reverse, err := dns.ReverseAddr(address)
		lab.Must(t, err)
		return name(want, reverse, dns.TypePTR)
	}
	c.await(t, vm("127.50.0.20", "worker-0"))
	c.expect(t,
		vm("127.50.0.9", "nfs"), vm("127.50.0.9 nfs.blue.lab.example.com.", "files"),
		vm(upstreamAnswer+" docs.example.org.", "docs"), name("docs.example.org.", "docs.blue.lab.example.com", dns.TypeCNAME),
		vm("NXDOMAIN missing.blue.lab.example.com.", "nothing"), vm("127.50.0.20 worker-0.blue.lab.example.com.", "vm"),
		name(strings.Repeat("x", 255)+" "+strings.Repeat("x", 45), "text.blue.lab.example.com", dns.TypeTXT),
		vm(blue.proxy, "api"), vm(blue.proxy, "registry"), name(blue.proxy, "mirror.example.org", dns.TypeA),
		name(noData, "registry.blue.lab.example.com", dns.TypeAAAA), name(upstreamAnswer, "other.example.org", dns.TypeA),
		name(noData, "nfs.blue.lab.example.com", dns.TypeHTTPS),
		pointer("worker-0.blue.lab.example.com.", "127.50.0.20"), pointer(nxDomain, "127.50.0.21"), vm(nxDomain, "worker-1"),
		question{from: pod, name: "worker-0.blue.lab.example.com", want: nxDomain}, question{from: pod, name: "registry.blue.lab.example.com", want: nxDomain},
	)
	if got := c.ask(t.Context(), vm("", "one")); !strings.Contains(got, servFail) {
		t.Errorf("a loop of aliases: got %s", got)
	}

	// The VM moves to another address, another VM comes, and a record changes.
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(leaseYAML(t, "worker-0", "127.50.0.20"))))
	cp.Create(t, leaseYAML(t, "worker-0", "127.50.0.22")+"---\n"+leaseYAML(t, "worker-1", "127.50.0.21"))
	cp.MustApply(t, infraWithRecords(`{name: nfs.blue.lab.example.com, type: A, values: [127.50.0.8]}`)+"---\n"+backendOfBlue("other.example.org"))
	c.await(t,
		vm("127.50.0.22", "worker-0"), vm("127.50.0.21", "worker-1"), pointer("worker-1.blue.lab.example.com.", "127.50.0.21"), pointer(nxDomain, "127.50.0.20"),
		vm("127.50.0.8", "nfs"), vm(nxDomain, "files"), vm(nxDomain, "registry"),
		name(blue.proxy, "other.example.org", dns.TypeA), name(upstreamAnswer, "mirror.example.org", dns.TypeA),
	)
}
