package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// siteOf returns facts with an Infra and the given objects, and the Infra's site.
func siteOf(t *testing.T, objects ...string) (*Facts, *Site) {
	t.Helper()
	facts := NewFacts(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	infra := `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: Infra
metadata: {name: demo, namespace: clusters}
spec: {networkConfig: {cidr: 192.0.2.0/24, gateway: 192.0.2.1, networkAttachmentDefinition: vlan}}
`
	for _, text := range append([]string{infra}, objects...) {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		facts.add(u)
	}
	return facts, NewSite(facts, "clusters/demo")
}

// TestFailureOfAComponentBlocksOnlyItsChecks runs checks after one that fails for DNS only.
func TestFailureOfAComponentBlocksOnlyItsChecks(t *testing.T) {
	of := func(components ...string) func(*Site) []Finding {
		return func(*Site) []Finding {
			var findings []Finding
			for _, c := range components {
				findings = append(findings, failed(model.Ref{Kind: "Pod", Namespace: "clusters", Name: c}, "r", "f").of(c))
			}
			return findings
		}
	}
	_, site := siteOf(t)
	d := Diagnose(site, []Check{
		{Code: "OOOI-POD-002", Run: of("dns")},
		{Code: "OOOI-DNS-001", After: []string{"OOOI-POD-002"}, Run: of("dns")},
		{Code: "OOOI-DHCP-001", After: []string{"OOOI-POD-002"}, Run: of()},
		{Code: "OOOI-DHCP-002", Needs: []string{"OOOI-POD-002"}, Run: of()},
		{Code: "OOOI-PRX-002", After: []string{"OOOI-DNS-001"}, Run: of()},
		{Code: "OOOI-NET-003", After: []string{"OOOI-POD-002"}, Run: of("dns", "dhcp")},
		{Code: "OOOI-LNK-001", After: []string{"OOOI-POD-002"}, Run: of("dns")},
		{Code: "OOOI-LNK-002", Needs: []string{"OOOI-POD-002"}, Run: of()},
		{Code: "OOOI-PRB-001", Component: "dns", After: []string{"OOOI-DHCP-001"}, Run: of()},
		{Code: "OOOI-PRB-003", Component: "dhcp", After: []string{"OOOI-NET-003"}, Run: of()},
	}, func(string) bool { return true })
	var got []string
	for _, r := range d.Results {
		line := strings.TrimSpace(r.Code + " " + string(r.Status) + " " + r.BlockedBy)
		for _, f := range r.Findings {
			line += " " + f.Object.Name
		}
		got = append(got, line)
	}
	want := []string{
		"OOOI-POD-002 fail dns",
		"OOOI-DNS-001 skip OOOI-POD-002",
		"OOOI-DHCP-001 pass",
		"OOOI-DHCP-002 pass",
		"OOOI-PRX-002 pass",
		"OOOI-NET-003 fail dhcp",
		"OOOI-LNK-001 skip OOOI-POD-002",
		"OOOI-LNK-002 skip OOOI-POD-002",
		"OOOI-PRB-001 skip OOOI-POD-002",
		"OOOI-PRB-003 skip OOOI-NET-003",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPodsWithTheAddressOfAnother(t *testing.T) {
	set := func(name, infra string) string {
		return fmt.Sprintf("{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: %s, namespace: clusters, labels: {app.kubernetes.io/managed-by: %s}, annotations: {%s: clusters/%s}}}",
			name, v1alpha1.ManagedBy, v1alpha1.AnnotationInfra, infra)
	}
	_, site := siteOf(t, set("demo-dns", "demo"), set("demo-dns-192-0-2-3", "demo"), set("other-dns", "other"))
	site.reads = in(AtInfra, statefulSets)
	var rendered []*unstructured.Unstructured
	u := &unstructured.Unstructured{}
	u.SetKind("StatefulSet")
	u.SetName("demo-dns")
	rendered = append(rendered, u)
	var got []string
	for _, f := range extraWorkloads(site, rendered) {
		got = append(got, f.Object.Name+": "+f.Message)
	}
	want := []string{
		"demo-dns-192-0-2-3: setup does not render this StatefulSet; its pods may have the address of another one",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRootCauseIsReported(t *testing.T) {
	ref := model.Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}
	passes := func(*Site) []Finding { return nil }
	checks := []Check{
		{Code: "A", Run: passes},
		{Code: "B", Needs: []string{"A"}, Run: func(*Site) []Finding { return []Finding{warned(ref, "r", "w"), failed(ref, "r", "f")} }},
		{Code: "C", Needs: []string{"A", "B"}, Run: passes},
		{Code: "D", Needs: []string{"C"}, Run: passes},
		{Code: "E", Needs: []string{"A"}, Run: func(*Site) []Finding { return []Finding{warned(ref, "r", "w")} }},
		{Code: "F", Needs: []string{"E"}, Run: passes},
		{Code: "G", NotApplicable: func(*Site) string { return "it is disabled" }, Run: passes},
		{Code: "H", Needs: []string{"G"}, Run: passes},
		{Code: "I", Reads: in(AtInfra, pods), Run: passes},
		{Code: "J", Needs: []string{"I"}, Run: passes},
		{Code: "K", Run: func(*Site) []Finding { panic("oh") }},
		{Code: "L", Run: func(s *Site) []Finding { s.list(pods, AtInfra); return nil }},
	}
	facts, site := siteOf(t)
	facts.unread[place{pods, "clusters"}] = "listing Pods in namespace clusters: forbidden"
	d := Diagnose(site, checks, func(code string) bool { return code != "A" })
	var got []string
	for _, r := range d.Results {
		got = append(got, strings.TrimSpace(strings.Join([]string{r.Code, string(r.Status), r.BlockedBy, r.Reason}, " ")))
	}
	want := []string{
		"B fail", "C skip B blocked by B", "D skip B blocked by B", "E warn", "F pass", "G skip  it is disabled", "H skip  it is disabled",
		"I skip  listing Pods in namespace clusters: forbidden", "J skip  listing Pods in namespace clusters: forbidden",
		"K error  the check panicked: oh; this is a bug in doctor, please report it",
		"L error  the check reads Pod in the Infra's namespace without declaring it",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if d.Summary[Failed] != 1 || d.Summary[Skipped] != 6 || !d.Results[7].Inconclusive || !d.Results[8].Inconclusive || d.Results[5].Inconclusive {
		t.Errorf("%v", d.Summary)
	}
}

func TestForwardedZones(t *testing.T) {
	corefile := `
.:53 {
    kubernetes cluster.local
    forward . /etc/resolv.conf
}
demo.example.com:53 other.example.com. {
    errors
    forward . 10.96.0.7:53
}
elsewhere.example.com {
    forward . 10.96.0.70
}
`
	if diff := cmp.Diff([]string{"demo.example.com", "other.example.com"}, forwardedZones(corefile, []string{"10.96.0.7"})); diff != "" {
		t.Error(diff)
	}
}

func TestVMsWithoutALease(t *testing.T) {
	machine := func(name, created, phase, network string) string {
		return "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: " + name + ", namespace: clusters-demo, creationTimestamp: \"" + created + "\"}\n" +
			"spec: {networks: [{name: vlan, multus: {networkName: " + network + "}}]}\nstatus: {phase: " + phase + "}\n"
	}
	const long = "2026-01-01T00:00:00Z"
	_, site := siteOf(
		t,
		machine("without", long, "Running", "clusters/vlan"), machine("with", long, "Running", "clusters/vlan"), machine("young", "2026-01-02T03:03:05Z", "Running", "clusters/vlan"),
		machine("starting", long, "Scheduling", "clusters/vlan"), machine("elsewhere", long, "Running", "vlan"),
		"apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: clusters.demo.192.0.2.10, namespace: clusters, labels: {leasedb.densityops.com/pool: clusters.demo, leasedb.densityops.com/state: bound}}\n"+
			"spec: {holderIdentity: clusters-demo/with/vlan, renewTime: \"2026-01-02T03:04:05.000000Z\"}\n",
	)
	site.namespaces[AtControlPlane] = []string{"clusters-demo"}
	site.reads = slices.Concat(in(AtInfra, leaseObjects), in(AtControlPlane, machines), pagesIn(AtInfra, dhcpState))
	var got []string
	for _, f := range checkVMLeases(site) {
		got = append(got, f.Object.Name)
	}
	if diff := cmp.Diff([]string{"without"}, got); diff != "" || len(site.checkErrors) > 0 {
		t.Errorf("%s%v", diff, site.checkErrors)
	}
}

// crd is the format of a CustomResourceDefinition: its plural, its version and whether it is established.
const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: %s.hostedcluster.densityops.com}\n" +
	"spec: {versions: [{name: %s, served: true}]}\nstatus: {conditions: [{type: Established, status: %q}]}\n"

// servedCRDs are our CustomResourceDefinitions.
var servedCRDs = []string{fmt.Sprintf(crd, "infras", "v1alpha1", "True"), fmt.Sprintf(crd, "proxyservers", "v1alpha1", "True")}

// TestChecksOnWrittenObjects runs checks on objects in memory, for states that no test creates on an API
// server.
func TestChecksOnWrittenObjects(t *testing.T) {
	const hosted = "apiVersion: hypershift.openshift.io/v1beta1\nkind: HostedCluster\nmetadata: {name: demo, namespace: clusters}\nspec: {dns: {baseDomain: example.com}, services: [%s]}\n"
	const byName = "{service: APIServer, servicePublishingStrategy: {type: LoadBalancer, loadBalancer: {hostname: api.demo.example.com}}}"
	const byAddress = "{service: APIServer, servicePublishingStrategy: {type: LoadBalancer}}"
	const coredns = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: coredns, namespace: kube-system}\ndata: {Corefile: '.:53 { }'}\n"
	const operator = "apiVersion: operator.openshift.io/v1\nkind: DNS\nmetadata: {name: default}\n"
	infras, servers := servedCRDs[0], servedCRDs[1]
	for _, tc := range []struct {
		name, code string
		objects    []string
		want       Status
	}{
		{"both CRDs", "OOOI-API-001", []string{infras, servers}, Passed},
		{"one CRD", "OOOI-API-001", []string{infras}, Failed},
		{"another version", "OOOI-API-001", []string{infras, fmt.Sprintf(crd, "proxyservers", "v1", "True")}, Failed},
		{"CRD not established", "OOOI-API-001", []string{infras, fmt.Sprintf(crd, "proxyservers", "v1alpha1", "False")}, Failed},
		{"published by name", "OOOI-HC-003", []string{fmt.Sprintf(hosted, byName)}, Passed},
		{"published by address", "OOOI-HC-003", []string{fmt.Sprintf(hosted, byAddress)}, Failed},
		{"unknown cluster DNS", "OOOI-DNS-004", []string{fmt.Sprintf(hosted, byName)}, Skipped},
		{"Corefile without forwarder", "OOOI-DNS-004", []string{fmt.Sprintf(hosted, byName), coredns}, Warned},
		{"DNS operator without forwarder", "OOOI-DNS-004", []string{fmt.Sprintf(hosted, byName), coredns, operator}, Warned},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, site := siteOf(t, tc.objects...)
			site.Cluster = &model.Cluster{Ref: model.Ref{Kind: "HostedCluster", Namespace: "clusters", Name: "demo"}, Domains: []string{"demo.example.com"}}
			site.namespaces[AtHosted] = []string{"clusters"}
			site.Infra.Spec.InfraComponents.DNS = &v1alpha1.InfraDNS{ServerIP: "192.0.2.3"}
			d := Diagnose(site, orderedChecks(t), func(code string) bool { return code == tc.code })
			if d.Results[0].Status != tc.want {
				t.Errorf("%+v", d.Results[0])
			}
		})
	}
}

// TestProbeThatCouldNotRun has errors of the API server about the objects of a probe.
func TestProbeThatCouldNotRun(t *testing.T) {
	const failure = "probing the VLAN failed: "
	for _, tc := range []struct {
		name       string
		probe      Probe
		want       Status
		text, next string
	}{
		{
			"right is missing", Probe{Failed: failure + `creating Job demo-probe-x: jobs.batch is forbidden: User "reader" cannot create resource "jobs" in API group "batch" in the namespace "clusters"`}, Skipped,
			"ask an administrator for the rights that --probe needs in namespace clusters, of which create of jobs.batch is missing", "",
		},
		{
			"quota", Probe{Failed: failure + `creating Job demo-probe-x: jobs.batch "demo-probe-x" is forbidden: exceeded quota: few, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0`}, Failed,
			"ResourceQuota clusters/few permits no more count/jobs.batch", "kubectl -n clusters edit resourcequota few",
		},
		{
			"policy", Probe{Failed: failure + `reserving address 192.0.2.99 for the probe pod: leases.coordination.k8s.io "clusters.demo.192.0.2.99" is forbidden: ValidatingAdmissionPolicy 'frozen' with binding 'frozen' denied request: no`}, Failed,
			"ValidatingAdmissionPolicy frozen denies them", "kubectl edit validatingadmissionpolicy frozen",
		},
		{
			"webhook for pods", Probe{NotStarted: true, Failed: failure + `the pod does not start: Error creating: admission webhook "pods.example.com" denied the request: no`}, Failed,
			`so that ours could not be replaced: admission webhook "pods.example.com" rejects them`, "find the configuration with this webhook",
		},
		{"range is full", Probe{Failed: failure + "the DHCP ranges have no free IPv4 address for the probe pod"}, Skipped, "have no free IPv4 address", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts, site := siteOf(t, servedCRDs...)
			facts.addProbe("clusters/demo", &tc.probe)
			r := Diagnose(site, orderedChecks(t), func(code string) bool { return code == probeStarts }).Results[0]
			var said, remedy string
			if said = r.Reason; len(r.Findings) == 1 {
				said, remedy = r.Findings[0].Message, r.Findings[0].Remedy
			}
			if r.Status != tc.want || r.Inconclusive != (tc.want == Skipped) || !strings.Contains(said, tc.text) || !strings.Contains(remedy, tc.next) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestRejectedPodsAreReportedOnce has a probe whose pod is rejected by the same webhook as that of DHCP.
func TestRejectedPodsAreReportedOnce(t *testing.T) {
	const rejected = `admission webhook "pods.example.com" denied the request: no`
	facts, site := siteOf(t, append(slices.Clone(servedCRDs), `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: demo-dhcp, namespace: clusters, uid: dhcp, labels: {hostedcluster.densityops.com/infra: demo, app.kubernetes.io/component: dhcp}}
spec: {replicas: 1}
`, `
apiVersion: v1
kind: Event
metadata: {name: demo-dhcp.1, namespace: clusters}
involvedObject: {kind: StatefulSet, namespace: clusters, name: demo-dhcp, uid: dhcp}
reason: FailedCreate
message: 'create Pod demo-dhcp-0 in StatefulSet demo-dhcp failed error: `+rejected+`'
lastTimestamp: "2026-01-02T03:04:00Z"
`)...)
	site.Infra.Spec.InfraComponents.DHCP = &v1alpha1.InfraDHCP{ServerIP: "192.0.2.2"}
	facts.addProbe("clusters/demo", &Probe{NotStarted: true, Failed: "the pod does not start: Error creating: " + rejected})
	for _, r := range Diagnose(site, orderedChecks(t), func(code string) bool { return strings.HasPrefix(code, "OOOI-PRB-") || code == "OOOI-POD-005" }).Results {
		if r.Code == "OOOI-POD-005" && r.Status != Failed || r.Code != "OOOI-POD-005" && r.Status != Skipped || r.Code == probeStarts && r.BlockedBy != "OOOI-POD-005" {
			t.Errorf("%+v", r)
		}
	}
}

func TestResultsAreSortedBySeverity(t *testing.T) {
	ref := model.Ref{Kind: "Infra", Namespace: "clusters", Name: "demo"}
	checks := []Check{
		{Code: "A", Title: "a", Run: func(*Site) []Finding {
			return []Finding{warned(ref, "remedy of A", "message of A"), warned(ref, "remedy of A", "other message of A"), warned(ref, "other remedy of A", "last message of A")}
		}},
		{Code: "B", Title: "b", Run: func(*Site) []Finding {
			return []Finding{failed(ref, "remedy of B", "message of B").because("evidence of B\nin two lines\n")}
		}},
		{Code: "C", Title: "c", Needs: []string{"B"}, Run: func(*Site) []Finding { return nil }},
		{Code: "D", Title: "d", Run: func(*Site) []Finding { return nil }},
	}
	for code, pod := range map[string]string{"E": "one", "F": "other", "G": "one"} {
		checks = append(checks, Check{Code: code, Title: "title of " + code, Run: func(s *Site) []Finding {
			s.unanswered = append(s.unanswered, "Pod "+pod+" did not answer")
			return nil
		}})
	}
	slices.SortFunc(checks, func(a, b Check) int { return strings.Compare(a.Code, b.Code) })
	_, site := siteOf(t)
	var b strings.Builder
	if err := Diagnose(site, checks, func(string) bool { return true }).Show(&b, false); err != nil {
		t.Fatal(err)
	}
	want := `fail   B  b
       Infra clusters/demo: message of B
         evidence of B
         in two lines
         -> remedy of B
       ` + docs + `b
       blocks: C
warn   A  a
       Infra clusters/demo: message of A
       Infra clusters/demo: other message of A
         -> remedy of A
       Infra clusters/demo: last message of A
         -> other remedy of A
       ` + docs + `a
skip   2 checks: Pod one did not answer
       E, G
skip   F  title of F: Pod other did not answer
Infra clusters/demo: 1 failed, 1 warning; some data could not be read
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
}
