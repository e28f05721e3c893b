package dns_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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

// dig returns the data of the answer to a client, or the rcode if there is none, or the error if there is no reply. Lines are
// sorted and joined by spaces.
func (c *coredns) dig(t *testing.T, from string, args ...string) string {
	t.Helper()
	args = append([]string{"-b", from, "@127.0.0.1", "-p", strconv.Itoa(c.port), "+tries=1", "+noall", "+answer", "+comments"}, args...)
	out, err := exec.CommandContext(t.Context(), "dig", args...).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("dig %v: %v: %s", args, err, out)
	}
	var values []string
	rcode := ""
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch _, status, ok := strings.Cut(line, "status: "); {
		case ok:
			rcode, _, _ = strings.Cut(status, ",")
		case len(fields) > 4 && fields[0][0] != ';':
			values = append(values, strings.Join(fields[4:], " "))
		}
	}
	if len(values) == 0 || rcode != noData {
		values = append(values, rcode)
	}
	slices.Sort(values)
	return strings.Join(values, " ")
}

// TestRecordsAndVMNames follows changes of records and leases with dig.
func TestRecordsAndVMNames(t *testing.T) {
	if _, err := exec.LookPath("dig"); err != nil {
		t.Skip("dig is not installed")
	}
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
	type dig struct{ want, args string }
	check := func(await bool, list ...dig) {
		t.Helper()
		for _, d := range list {
			different := func() string {
				if got := c.dig(t, blueVM, strings.Fields(d.args)...); got != d.want {
					return "got " + got + ", want " + d.want
				}
				return ""
			}
			if await {
				lab.Await(t, "dig "+d.args, different)
			} else if problem := different(); problem != "" {
				t.Errorf("dig %s: %s", d.args, problem)
			}
		}
	}
	check(true, dig{"127.50.0.20", "worker-0.blue.lab.example.com"})
	check(false,
		dig{"127.50.0.9", "nfs.blue.lab.example.com"}, dig{"127.50.0.9 nfs.blue.lab.example.com.", "files.blue.lab.example.com"},
		dig{upstreamAnswer + " docs.example.org.", "docs.blue.lab.example.com"}, dig{"docs.example.org.", "docs.blue.lab.example.com CNAME"},
		dig{"NXDOMAIN missing.blue.lab.example.com.", "nothing.blue.lab.example.com"}, dig{"127.50.0.20 worker-0.blue.lab.example.com.", "vm.blue.lab.example.com"},
		dig{`"` + strings.Repeat("x", 255) + `" "` + strings.Repeat("x", 45) + `"`, "text.blue.lab.example.com TXT"},
		dig{blue.proxy, "api.blue.lab.example.com"}, dig{blue.proxy, "registry.blue.lab.example.com"}, dig{blue.proxy, "mirror.example.org"},
		dig{noData, "registry.blue.lab.example.com AAAA"}, dig{upstreamAnswer, "other.example.org"}, dig{noData, "nfs.blue.lab.example.com HTTPS"},
		dig{"worker-0.blue.lab.example.com.", "-x 127.50.0.20"}, dig{nxDomain, "-x 127.50.0.21"}, dig{nxDomain, "worker-1.blue.lab.example.com"},
	)
	if got := c.dig(t, blueVM, "one.blue.lab.example.com"); !strings.Contains(got, servFail) {
		t.Errorf("a loop of aliases: got %s", got)
	}
	for _, name := range []string{"worker-0.blue.lab.example.com", "registry.blue.lab.example.com"} {
		if got := c.dig(t, pod, name); got != nxDomain {
			t.Errorf("%s for pods: got %s, want %s", name, got, nxDomain)
		}
	}

	// The VM moves to another address, another VM comes, and a record changes.
	lab.Must(t, cp.DeleteYAML(t.Context(), []byte(leaseYAML(t, "worker-0", "127.50.0.20"))))
	cp.Create(t, leaseYAML(t, "worker-0", "127.50.0.22")+"---\n"+leaseYAML(t, "worker-1", "127.50.0.21"))
	cp.MustApply(t, infraWithRecords(`{name: nfs.blue.lab.example.com, type: A, values: [127.50.0.8]}`)+"---\n"+backendOfBlue("other.example.org"))
	check(true,
		dig{"127.50.0.22", "worker-0.blue.lab.example.com"}, dig{"127.50.0.21", "worker-1.blue.lab.example.com"}, dig{"worker-1.blue.lab.example.com.", "-x 127.50.0.21"},
		dig{nxDomain, "-x 127.50.0.20"}, dig{"127.50.0.8", "nfs.blue.lab.example.com"}, dig{nxDomain, "files.blue.lab.example.com"},
		dig{nxDomain, "registry.blue.lab.example.com"}, dig{blue.proxy, "other.example.org"}, dig{upstreamAnswer, "mirror.example.org"},
	)
}
