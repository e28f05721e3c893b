//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// other names the hosted cluster of another tenant, on another VLAN.
var other = lab.Site{Namespace: "others", Name: "other", BaseDomain: "lab.example.com", VLAN: "198.18.60", Network: "vlan60"}

const (
	otherAPI   = "api.other.lab.example.com"
	otherDNS   = "198.18.60.6"
	otherProxy = "198.18.60.7"
)

// registryAddress is the VLAN address of the registry of the release image.
const registryAddress = "198.18.50.201"

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
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`

// Users that have only the permissions that 'kubectl oooi test --print-rbac' prints, with --disruptive, and without permission to
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
		s.cp.MustApply(t, role, fmt.Sprintf(testerBinding, user))
	}
}

// verify runs 'kubectl oooi test' as a user with the printed permissions, after grantTest, and returns its report.
func (s *site) verify(t *testing.T, args ...string) *siteTest {
	t.Helper()
	user := tester
	if slices.Contains(args, "--disruptive") {
		user = disruptiveTester
	}
	out := lab.Execute(t, 3*time.Minute, append([]string{s.binary, "--kubeconfig", s.cp.Kubeconfig(), "--as", user, "-n", "clusters", "test", "demo", "-o", "json"}, args...)...)
	r := &siteTest{}
	if err := json.Unmarshal([]byte(out.Stdout), r); err != nil {
		t.Fatalf("exit code %d: %v\n%s%s", out.Code, err, out.Stdout, out.Stderr)
	}
	failed := slices.ContainsFunc(r.Results, func(one scenario) bool { return one.Status == "fail" || one.Status == "error" })
	if want := map[bool]int{true: 2}[failed]; out.Code != want {
		t.Errorf("exit code %d, want %d", out.Code, want)
	}
	for line := range strings.Lines(out.Stdout) {
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
	s.setup(t, lab.Merge(infra, "spec: {infraComponents: {dns: {records: [{name: registry.example.com, type: A, values: ["+registryAddress+"]}]}}}"))
	hostOnVLAN(t, registryAddress+"/24")
	s.ca.TLSBackend(t, registryAddress+":443", "registry.example.com")
	overTLS, plain := vlanServer(t, s.ca, "*.apps."+domain)
	s.servers["apps-https"], s.servers["apps-http"] = overTLS, plain
	s.cp.MustApply(t, other.Namespaces(), infraOn(other, "spec: {infraComponents: {dhcp: null}}"), other.HostedCluster().YAML())
	s.grantTest(t)
	s.boot(t, "worker-1", "02:00:00:00:50:71")
	s.boot(t, "worker-2", "02:00:00:00:50:72")
	before := s.everything(t)

	healthy := func(t *testing.T) {
		t.Helper()
		lab.Await(t, "all scenarios to pass", func() string { return strings.Join(s.verify(t).notPassed(), ", ") })
	}
	t.Run("healthy", healthy)
	if diff := cmp.Diff(before, s.everything(t)); diff != "" {
		t.Errorf("the test leaves\n%s", diff)
	}
	t.Run("pages", s.testPages)
	t.Run("without permission to delete", func(t *testing.T) {
		out := s.execute(t, 3*time.Minute, "--as", testerWithoutDelete, "-n", "clusters", "test", "demo", "--only", "dns-pod-udp")
		if out.Code != 1 || !strings.Contains(out.Stdout, "pass   dns-pod-udp") || !strings.Contains(out.Stderr, "cannot delete resource") {
			t.Errorf("exit code %d: %s%s", out.Code, out.Stdout, out.Stderr)
		}
		for _, job := range s.jobs(t) { // which the garbage collector deletes when its TTL is over
			if err := s.cp.Kube(t).BatchV1().Jobs("clusters").Delete(t.Context(), job, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}); err != nil {
				t.Error(err)
			}
		}
		lab.Await(t, "the test to leave nothing", func() string { return cmp.Diff(before, s.everything(t)) })
	})
	for _, f := range lab.Sample(s.breaks(), 4) {
		t.Run(f.want[0], func(t *testing.T) {
			f.inject(t)
			lab.Await(t, "the scenario to fail", func() string {
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
		lab.Await(t, "the client", func() string { // before it deletes the pod, all services must have answered for two seconds
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
	lab.Await(t, "the pod of DNS", func() string {
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
		lab.Await(t, name+" to notice", func() string {
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
	list, err := s.cp.Kube(t).BatchV1().Jobs("clusters").List(t.Context(), metav1.ListOptions{})
	lab.Must(t, err)
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// everything returns the objects of the cluster, and the Leases in the Infra's namespace.
func (s *site) everything(t *testing.T) []string {
	t.Helper()
	list := listObjects(t, s.cp)
	leases, err := s.cp.Kube(t).CoordinationV1().Leases("clusters").List(t.Context(), metav1.ListOptions{})
	lab.Must(t, err)
	for i := range leases.Items {
		list = append(list, "Lease "+leases.Items[i].Name)
	}
	return list
}
