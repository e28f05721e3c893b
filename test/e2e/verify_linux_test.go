//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// otherCluster is the hosted cluster of another tenant, and otherInfra its Infra on another VLAN.
var otherCluster = lab.HostedCluster{Namespace: "others", Name: "other", BaseDomain: "lab.example.com"}

const (
	otherAPI   = "api.other.lab.example.com"
	otherDNS   = "198.18.60.6"
	otherProxy = "198.18.60.7"
	otherInfra = `
apiVersion: v1
kind: Namespace
metadata: {name: others}
---
apiVersion: v1
kind: Namespace
metadata: {name: others-other}
---
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: other, namespace: others}
spec:
  hostedClusterRef: {name: other, namespace: others}
  networkConfig: {cidr: 198.18.60.0/24, gateway: 198.18.60.1, networkAttachmentDefinition: vlan60, dnsServers: [192.0.2.99]}
  infraComponents:
    dns: {serverIP: 198.18.60.6}
    proxy: {serverIP: 198.18.60.7}
---
`
)

// A siteTest is the report of 'kubectl oooi test'.
type siteTest struct{ Results []scenario }

type scenario struct {
	Name, Status, Reason string
	Requests             []sentRequest
}

type sentRequest struct{ Problem string }

// notPassed returns the scenarios that did not pass, as "NAME STATUS".
func (r *siteTest) notPassed() []string {
	var list []string
	for _, one := range r.Results {
		if one.Status != "pass" {
			list = append(list, one.Name+" "+one.Status)
		}
	}
	return list
}

// testerBinding gives a user a ClusterRole.
const testerBinding = `
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`

// Users that have only the rights that 'kubectl oooi test --print-rbac' prints, with --disruptive, and without the right to
// delete.
const tester, disruptiveTester, testerWithoutDelete = "oooi-test", "oooi-test-disruptive", "oooi-test-without-delete"

// grantTest creates the roles of the users.
func (s *site) grantTest(t *testing.T) {
	t.Helper()
	for user, flags := range map[string][]string{tester: nil, disruptiveTester: {"--disruptive"}, testerWithoutDelete: nil} {
		role := strings.Replace(s.oooi(t, append([]string{"test", "--print-rbac"}, flags...)...), "name: "+tester, "name: "+user, 1)
		if user == testerWithoutDelete {
			role = strings.ReplaceAll(role, "- delete\n", "- get\n")
		}
		apply(t, s.cp, "%s", role+fmt.Sprintf(testerBinding, user))
	}
}

// verify runs 'kubectl oooi test' as a user with the printed rights, after grantTest, and returns its report.
func (s *site) verify(t *testing.T, args ...string) *siteTest {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	user := tester
	if slices.Contains(args, "--disruptive") {
		user = disruptiveTester
	}
	cmd := exec.CommandContext(ctx, s.binary, append([]string{"--kubeconfig", s.cp.Kubeconfig(), "--as", user, "-n", "clusters", "test", "demo", "-o", "json"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", cmd, err)
	}
	r, code := &siteTest{}, cmd.ProcessState.ExitCode()
	if err := json.Unmarshal(stdout.Bytes(), r); err != nil {
		t.Fatalf("%s: exit code %d: %v\n%s%s", cmd, code, err, &stdout, &stderr)
	}
	failed := slices.ContainsFunc(r.Results, func(one scenario) bool { return one.Status == "fail" || one.Status == "error" })
	if want := map[bool]int{true: 2}[failed]; code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	for line := range strings.Lines(stdout.String()) {
		if strings.Contains(line, `"problem"`) || strings.Contains(line, `"reason"`) {
			t.Log(strings.TrimSpace(line))
		}
	}
	return r
}

// TestVerifyOnTheNode tests a healthy site, on which no scenario may fail or be skipped, and then breaks it in such a way
// that a single scenario fails.
func TestVerifyOnTheNode(t *testing.T) {
	s := newSite(t)
	s.setup(t, infra)
	overTLS, plain := vlanServer(t, s.ca, "*.apps."+domain)
	s.servers["apps-https"], s.servers["apps-http"] = overTLS, plain
	apply(t, s.cp, "%s", otherInfra+otherCluster.YAML())
	s.grantTest(t)
	before := s.everything(t)

	healthy := func(t *testing.T) {
		t.Helper()
		await(t, "all scenarios to pass", func() string { return strings.Join(s.verify(t).notPassed(), ", ") })
	}
	t.Run("healthy", healthy)
	if diff := cmp.Diff(before, s.everything(t)); diff != "" {
		t.Errorf("the test leaves\n%s", diff)
	}
	t.Run("without the right to delete", func(t *testing.T) {
		out, err := exec.CommandContext(t.Context(), s.binary, "--kubeconfig", s.cp.Kubeconfig(), "--as", testerWithoutDelete, "-n", "clusters", "test", "demo", "--only", "dns-pod-udp").CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "pass   dns-pod-udp") || !strings.Contains(string(out), "cannot delete resource") {
			t.Errorf("%v: %s", err, out)
		}
		for _, job := range s.jobs(t) { // which the garbage collector deletes when its TTL is over
			if err := kube(t, s.cp).BatchV1().Jobs("clusters").Delete(t.Context(), job, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
				t.Error(err)
			}
		}
		await(t, "the test to leave nothing", func() string { return cmp.Diff(before, s.everything(t)) })
	})
	for _, f := range lab.Sample(s.breaks(), 4) {
		t.Run(f.want[0], func(t *testing.T) {
			f.inject(t)
			await(t, "the scenario to fail", func() string {
				if got := s.verify(t).notPassed(); !slices.Equal(got, f.want) {
					return fmt.Sprintf("not passed: %q, want %q", got, f.want)
				}
				return ""
			})
		})
	}
	t.Run("disruptive", func(t *testing.T) {
		r := s.verify(t, "--disruptive", "--yes", "--only", "replace")
		if got := r.notPassed(); len(r.Results) != 3 || len(got) > 0 {
			t.Errorf("%d scenarios, not passed: %q", len(r.Results), got)
		}
	})
	t.Run("API server outage", func(t *testing.T) {
		s.cutOff(t)
		if got := s.verify(t, "--skip", "dhcp").notPassed(); len(got) > 0 { // DHCP cannot learn of a new client
			t.Errorf("not passed: %q", got)
		}
	})
	t.Run("a pod does not start again", func(t *testing.T) {
		lab.NeedLong(t) // the scenario lasts until its client's deadline
		var r *siteTest
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { r = s.verify(t, "--disruptive", "--yes", "--only", "replace-dns") })
		await(t, "the client", func() string { // before it deletes the pod, all services must have answered for two seconds
			pods := s.pods(t, "test")
			if len(pods) != 1 || pods[0].Spec.NodeName == "" {
				return fmt.Sprintf("%d pods", len(pods))
			}
			return ""
		})
		s.cordon(t, node.Node, true)
		t.Cleanup(func() { s.cordon(t, node.Node, false) })
		running.Wait()
		if r == nil {
			return
		}
		if got := r.notPassed(); !slices.Equal(got, []string{"replace-dns fail"}) {
			t.Fatalf("not passed: %q", got)
		}
		if !slices.ContainsFunc(r.Results[0].Requests, func(one sentRequest) bool { return strings.Contains(one.Problem, "1 node(s) were unschedulable") }) {
			t.Errorf("the reason is not in %+v", r.Results[0])
		}
	})
	await(t, "the pod of DNS", func() string {
		for _, pod := range s.pods(t, v1alpha1.ComponentDNS) {
			if ready(&pod) {
				return ""
			}
		}
		return "it is not ready"
	})
	t.Run("healthy after the faults", healthy)
	if diff := cmp.Diff(before, s.everything(t)); diff != "" {
		t.Errorf("the tests leave\n%s", diff)
	}
}

// cutOff drops what the API server sends to the pods of DHCP, DNS and the proxy until the end of the test, and waits until they notice.
func (s *site) cutOff(t *testing.T) {
	t.Helper()
	server := clusterIP(t, s.cp, metav1.NamespaceDefault, "kubernetes")
	pods := map[string]string{
		"demo-dns-0": `:9153/metrics coredns_oooi_snapshot_age_seconds.* [1-9]`, "demo-dhcp-0": `:9903/metrics coredhcp_leasedb_synced.* 0`,
		"demo-proxy-0": `:9902/metrics xdsd_snapshot_age_seconds [1-9]`,
	}
	for name := range pods {
		s.drops(name, "eth0", "ip saddr "+server)(t)
	}
	for name, line := range pods {
		page, stale, _ := strings.Cut(line, " ")
		expected, ip := regexp.MustCompile("(?m)^"+stale), getPod(t, s.cp, "clusters", name).Status.PodIP
		await(t, name+" to notice", func() string {
			if _, text := lab.Get(t, "http://"+ip+page); !expected.Match(text) {
				return "it has not"
			}
			return ""
		})
	}
}

// jobs returns the names of the Jobs in the Infra's namespace.
func (s *site) jobs(t *testing.T) (names []string) {
	t.Helper()
	list, err := kube(t, s.cp).BatchV1().Jobs("clusters").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// everything returns the objects of the cluster, and the Leases in the Infra's namespace.
func (s *site) everything(t *testing.T) []string {
	t.Helper()
	list := listObjects(t, s.cp)
	leases, err := kube(t, s.cp).CoordinationV1().Leases("clusters").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range leases.Items {
		list = append(list, "Lease "+leases.Items[i].Name)
	}
	return list
}

// A siteBreak is a fault that one scenario finds. The end of the test that injects it repairs it. want has the scenarios
// that do not pass, as "NAME STATUS"; those that need the first one are skipped.
type siteBreak struct {
	want   []string
	inject func(*testing.T)
}

// breaks returns a fault for each scenario.
func (s *site) breaks() []siteBreak {
	var list []siteBreak
	add := func(name string, inject func(*testing.T)) {
		list = append(list, siteBreak{[]string{name + " fail"}, inject})
	}
	list = append(list, siteBreak{[]string{"dhcp-lease fail", "dhcp-options skip", "dhcp-servers skip"}, func(t *testing.T) {
		for _, pid := range s.processes(t, "demo-dhcp-0", "coredhcp") {
			if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) { // the kubelet may have restarted it
					t.Error(err)
				}
			})
		}
	}})
	const gateway = `{"spec": {"networkConfig": {"gateway": "%s"}}}`
	add("dhcp-options", s.patches("Infra", fmt.Sprintf(gateway, "198.18.50.254"), fmt.Sprintf(gateway, "198.18.50.1")))
	add("dhcp-servers", func(t *testing.T) { t.Cleanup(lab.OtherDHCP(t, vlan, "198.18.50")) })

	// Packets are selected by raw bytes: their offsets from the UDP header are those of ARCOUNT, of the first four bytes of
	// the name, and of the type in a query for api.demo.lab.example.com; over TCP, from the TCP header with timestamps.
	// An app that does not exist has a name of 10 bytes that begins with "test".
	const (
		query    = "udp dport 53 "
		plain    = "@th,144,16 0 "
		api      = "@th,160,32 0x03617069 "
		unused   = "@th,160,32 0x0a746573 "
		upstream = "@th,160,32 0x096f6f6f "
	)
	for _, client := range []struct{ name, device string }{{"vlan", "net1"}, {"pod", "eth0"}} {
		for _, fault := range []struct{ scenario, match string }{
			{"udp", "udp dport 53"},
			{"names", query + plain + api + "@th,368,16 1"},
			{"names", query + plain + unused},
			{"tcp", "tcp dport 53"},
			{"edns", query + "@th,144,16 != 0 ip length < 200"},
			{"negative", query + plain + api + "@th,368,16 28"},
			{"upstream", query + plain + upstream},
			{"upstream-tcp", "tcp dport 53 @th,368,32 0x096f6f6f"},
		} {
			prefix := "dns-" + client.name + "-"
			want := []string{prefix + fault.scenario + " fail"}
			switch fault.scenario {
			case "tcp":
				want = append(want, prefix+"upstream-tcp skip")
			case "udp":
				want = append(want, prefix+"names skip", prefix+"edns skip", prefix+"negative skip", prefix+"upstream skip")
				if client.name == "vlan" {
					want = append(want, "mtu-vlan skip", "isolation-names skip")
				}
			}
			list = append(list, siteBreak{want, s.drops("demo-dns-0", client.device, fault.match)})
		}
	}
	for _, service := range []struct {
		scenario, name string
		port           int
		address        string
	}{
		{"tls-api", "kube-apiserver", 6443, "192.0.2.81:6443"}, {"tls-oauth", "oauth-openshift", 6443, "192.0.2.82:6443"},
		{"tls-ignition", "ignition-server-proxy", 443, "192.0.2.83:8443"}, {"tls-konnectivity", "konnectivity-server", 8091, "192.0.2.84:8091"},
	} {
		at := netip.MustParseAddrPort(service.address)
		add(service.scenario, func(t *testing.T) {
			apply(t, s.cp, "%s", hostedCluster.Backend(service.name, service.port, netip.AddrPortFrom(at.Addr(), 1), ""))
			t.Cleanup(func() { s.restore(t, hostedCluster.Backend(service.name, service.port, at, "")) })
		})
	}
	for _, fault := range []struct {
		scenario, server string
		status           int
	}{
		{"tls-api", "kube-apiserver", 500}, {"tls-api", "kube-apiserver", 0}, // as with an etcd that hangs: not ready, or no response
		{"tls-oauth", "oauth-openshift", 503}, {"tls-ignition", "ignition-server-proxy", 0}, {"apps-https", "apps-https", 503}, {"apps-http", "apps-http", 503},
	} {
		add(fault.scenario, func(t *testing.T) {
			s.servers[fault.server].Respond(fault.status)
			t.Cleanup(func() { s.servers[fault.server].Respond(http.StatusOK) })
		})
	}
	for _, fault := range []struct{ scenario, match, verdict string }{
		{"apps-https", "tcp dport 443", "drop"}, {"apps-http", "tcp dport 80", "drop"},
		{"apps-http", "ip saddr 198.18.50.7 tcp dport 80", "reject with tcp reset"}, // to pods, Envoy responds itself
	} {
		add(fault.scenario, func(t *testing.T) {
			onMachine(t, "nft", "add table ip fault; add chain ip fault c { type filter hook input priority 0; }; add rule ip fault c ip daddr 198.18.50.200 "+fault.match+" "+fault.verdict)
			t.Cleanup(func() { onMachine(t, "nft", "delete table ip fault") })
		})
	}
	add("mtu-vlan", s.drops("demo-dns-0", "net1", query+"ip length > 1300"))
	add("isolation-names", func(t *testing.T) {
		upstreamAddresses.Store(otherAPI+".", otherProxy)
		t.Cleanup(func() { upstreamAddresses.Delete(otherAPI + ".") })
	})
	route := s.patches("ProxyServer",
		`{"spec": {"backends": [{"name": "other", "hostname": "`+otherAPI+`", "port": 6443, "targetService": "other", "targetPort": 6443, "targetNamespace": "clusters-demo"}]}}`,
		`{"spec": {"backends": null}}`)
	add("isolation-proxy", func(t *testing.T) {
		backend := hostedCluster.Backend("other", 6443, s.ca.TLSBackend(t, "192.0.2.85:6443", otherAPI).Addr(), "")
		apply(t, s.cp, "%s", backend)
		t.Cleanup(func() {
			if err := s.cp.DeleteYAML(context.WithoutCancel(t.Context()), []byte(backend)); err != nil {
				t.Error(err)
			}
		})
		route(t)
	})
	for address, serve := range map[string]func(t *testing.T){
		otherProxy: func(t *testing.T) { s.ca.TLSBackend(t, otherProxy+":6443", otherAPI) },
		otherDNS: func(t *testing.T) {
			lab.RunDNS(t, &dns.Server{Addr: otherDNS + ":53", Net: "udp", Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
				_ = w.WriteMsg(new(dns.Msg).SetRcode(q, dns.RcodeRefused)) // the client may have closed its socket
			})})
		},
	} {
		add("isolation-addresses", func(t *testing.T) {
			for address, device := range map[string]string{"198.18.50.1/24": vlan, address + "/32": "lo"} {
				onMachine(t, "ip", "address", "add", address, "dev", device)
				t.Cleanup(func() { onMachine(t, "ip", "address", "del", address, "dev", device) })
			}
			serve(t)
		})
	}
	slices.SortFunc(list, func(a, b siteBreak) int { return strings.Compare(a.want[0], b.want[0]) })
	return list
}

// onMachine runs a command on the machine of the test, also at the end of the test.
func onMachine(t *testing.T, line ...string) {
	t.Helper()
	if out, err := exec.CommandContext(context.WithoutCancel(t.Context()), line[0], line[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%v: %v: %s", line, err, out)
	}
}

// restore applies objects at the end of a test.
func (s *site) restore(t *testing.T, yaml string) {
	t.Helper()
	if err := s.cp.ApplyYAML(context.WithoutCancel(t.Context()), []byte(yaml)); err != nil {
		t.Error(err)
	}
}

// drops returns a function that drops packets which arrive at a device of a pod.
func (s *site) drops(pod, device, match string) func(*testing.T) {
	return func(t *testing.T) {
		pid := fmt.Sprint(s.processes(t, pod, "")[0])
		nft := func(script string) { onMachine(t, "nsenter", "--net=/proc/"+pid+"/ns/net", "nft", script) }
		nft("add table inet fault; add chain inet fault c { type filter hook input priority -350; }; add rule inet fault c iifname " + device + " " + match + " drop")
		t.Cleanup(func() { nft("delete table inet fault") })
	}
}

// patches returns a function that patches the object demo of one of our kinds.
func (s *site) patches(kind, patch, undo string) func(*testing.T) {
	return func(t *testing.T) {
		c, err := client.New(s.cp.RESTConfig(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		merge := func(patch string) {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
			u.SetNamespace("clusters")
			u.SetName("demo")
			if err := c.Patch(context.WithoutCancel(t.Context()), u, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
				t.Error(err)
			}
		}
		merge(patch)
		t.Cleanup(func() { merge(undo) })
	}
}
