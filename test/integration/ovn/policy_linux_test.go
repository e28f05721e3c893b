package ovn_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/lab"
)

// outageTime is how long the API server is unreachable after the daemons have noticed.
const outageTime = 5 * time.Second

// TestPolicyCutsOffTheAPIServer applies a NetworkPolicy that cuts off our pods from the API server, with the access control lists of
// OVN-Kubernetes. OVN must also end connections that exist, and VMs must get leases, names and
// connections.
func TestPolicyCutsOffTheAPIServer(t *testing.T) {
	lab.NeedLong(t) // builds and starts OVN
	s := newSite(t)
	s.podNetwork = true
	pods := map[string]*pod{}
	for name, node := range map[string]string{"demo-dhcp": "n1", "demo-dns": "n2"} {
		pods[name] = s.newPod(name, node)
	}
	pods["demo-proxy"] = s.newProxy(5, "n1").pod
	vm := s.newVM("vm-1", "n2", "02:00:00:00:00:01")
	works := func() string {
		lease := udhcpc(t, vm)
		if lease["domain_name_servers"] != "192.0.2.3" {
			return fmt.Sprintf("the lease is %v", lease)
		}
		c := client{vm.Namespace, netip.Addr{}}
		if got := c.resolve(t, "192.0.2.3", api, dns.TypeA); got != floating[0].String() {
			return api + " resolves to " + got
		}
		if got := c.reach(t, s.ca, netip.AddrPortFrom(floating[0], endpoints[api]), api); got != api {
			return "the proxy leads to " + got
		}
		return ""
	}
	lab.Await(t, "service", works)
	follows := map[string]func() bool{}
	for name, line := range map[string]string{
		"demo-dns": `9153/metrics coredns_oooi_snapshot_age_seconds{.*} 0`, "demo-dhcp": `9903/metrics coredhcp_leasedb_synced{.*} 1`, "demo-proxy": `9902/metrics xdsd_snapshot_age_seconds 0`,
	} {
		page, metric, _ := strings.Cut(line, " ")
		expected := regexp.MustCompile("(?m)^" + metric + "$")
		follows[name] = func() bool {
			_, text := lab.Get(t, "http://"+pods[name].IP+":"+page)
			return expected.Match(text)
		}
	}
	await := func(want bool) {
		for name, follow := range follows {
			lab.Poll(t, fmt.Sprintf("%s to follow the API server: %t", name, want), func() bool { return follow() == want })
		}
	}
	await(true)
	began := time.Now()
	s.ovn.ApplyEgress(t, s.outagePolicy())
	await(false)
	t.Logf("all daemons have noticed after %s", time.Since(began).Round(time.Second))
	for end := time.Now().Add(outageTime); time.Now().Before(end); {
		if problem := works(); problem != "" {
			t.Errorf("during the outage: %s", problem)
		}
	}
	for name, follow := range follows {
		if follow() {
			t.Errorf("%s follows the API server", name)
		}
	}
	s.ovn.DeleteEgress(t)
	await(true)
}

// outagePolicy returns the policy in testdata, with the address of the API server.
func (s *site) outagePolicy() *networkingv1.NetworkPolicy {
	s.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "outage.yaml"))
	if err != nil {
		s.Fatal(err)
	}
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.cp.RESTConfig().Host, "https://"))
	if err != nil {
		s.Fatal(err)
	}
	at, err := strconv.Atoi(port)
	if err != nil {
		s.Fatal(err)
	}
	policy := &networkingv1.NetworkPolicy{}
	changed := strings.NewReplacer("192.0.2.81", host, "6442", strconv.Itoa(at-1), "6444", strconv.Itoa(at+1)).Replace(string(text))
	if err := yaml.UnmarshalStrict([]byte(changed), policy); err != nil {
		s.Fatal(err)
	}
	return policy
}
