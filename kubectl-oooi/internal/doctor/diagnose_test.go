package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/kubectl-oooi/internal/drift"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// answers are the responses of daemons, by container.
type answers map[string]*problem.Report

// load returns the site of testdata after replacing pairs of texts, with the responses of daemons.
func load(t *testing.T, reports answers, pairs ...string) *site.Site {
	t.Helper()
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		lab.Must(t, err)
		return string(data)
	}
	text := read("site.yaml")
	facts := struct {
		Taken     time.Time        `json:"taken"`
		Unserved  []site.Kind      `json:"unserved"`
		Responses []*site.Response `json:"answers"`
	}{Taken: time.Date(2026, 11, 28, 12, 0, 10, 0, time.UTC), Unserved: []site.Kind{site.Constraints}}
	for _, c := range [][3]string{{"dhcp", "coredhcp", "192.0.2.2"}, {"dns", "coredns", "192.0.2.3"}, {"proxy", "xdsd", "192.0.2.4"}} {
		text += "---\n" + strings.NewReplacer("NAME", c[0], "CONTAINER", c[1], "ADDRESS", c[2]).Replace(read("pods.yaml"))
		facts.Responses = append(facts.Responses, &site.Response{Namespace: "clusters", Pod: "demo-" + c[0] + "-0", Container: c[1], Report: report(reports, c[1])})
	}
	facts.Responses = append(facts.Responses, &site.Response{Namespace: "oooi-system", Pod: "oooi-control-1", Container: "control", Report: report(reports, "control")})
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("testdata does not contain %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	folder := t.TempDir()
	data, err := json.Marshal(facts)
	lab.Must(t, err)
	for name, content := range map[string][]byte{"site.yaml": []byte(text), "facts.json": data} {
		lab.Must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	f, err := site.Load(folder, func(warning string) { t.Error(warning) })
	lab.Must(t, err)
	s := site.New(f, "clusters/demo", nil)
	if s == nil {
		t.Fatal("the site has no Infra")
	}
	return s
}

func report(reports answers, container string) *problem.Report {
	if r := reports[container]; r != nil {
		return r
	}
	return &problem.Report{}
}

func all(string) bool { return true }

// show returns the diagnosis as text.
func show(t *testing.T, d *Diagnosis, whole bool) string {
	t.Helper()
	var b strings.Builder
	lab.Must(t, d.Show(&b, whole))
	return b.String()
}

// podProblem returns a report with one problem about the pod itself.
func podProblem(code problem.Code, message string) *problem.Report {
	return &problem.Report{Problems: []problem.Problem{problem.Failed(code, model.Ref{}, "%s", message)}}
}

// ready and crashing are the ends of the pod of DNS.
const (
	ready = `ips": ["192.0.2.3"]}]'
spec: {nodeName: node-a, containers: [{name: coredns}]}
status: {phase: Running, podIP: 10.128.0.9, podIPs: [{ip: 10.128.0.9}], conditions: [{type: Ready, status: "True"}]}`
	pending = `ips": []}]'
spec: {containers: [{name: coredns}]}
status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: 0/1 nodes are available}]}`
	crashing = `ips": ["192.0.2.3"]}]'
spec: {nodeName: node-a, containers: [{name: coredns}]}
status: {phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: coredns, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}}]}`
)

// TestRootIsFirst runs the transcript testdata/roots.txt, which breaks a healthy site. The output of root is the first finding; the next command begins
// with the healthy site. The other commands are:
//
//	replace OLD => NEW               change the objects; \n is a line break
//	dns-pod pending|crashing         change the pod of DNS
//	report CONTAINER CODE MESSAGE    a daemon reports a problem with its pod
//	site CODE POD MESSAGE            control reports a problem
func TestRootIsFirst(t *testing.T) {
	var pairs []string
	reports := answers{}
	golden.Transcript(t, "testdata/roots.txt", func(line string) (output []string) {
		command, argument, _ := strings.Cut(line, " ")
		words := strings.SplitN(argument, " ", 3)
		switch command {
		case "replace":
			before, after, _ := strings.Cut(strings.ReplaceAll(argument, `\n`, "\n"), " => ")
			pairs = append(pairs, before, after)
		case "dns-pod":
			pairs = append(pairs, ready, map[string]string{"pending": pending, "crashing": crashing}[argument])
		case "report":
			reports[words[0]] = podProblem(problem.Code(words[1]), words[2])
		case "site":
			found := problem.Failed(problem.Code(words[0]), model.Ref{Kind: "Pod", Namespace: "clusters", Name: words[1]}, "%s", words[2])
			reports["control"] = &problem.Report{Sites: map[string][]problem.Problem{"Infra clusters/demo": {found}}}
		case "root":
			r := Diagnose(load(t, reports, pairs...), Added{}, all).Root()
			pairs, reports = nil, answers{}
			if r == nil {
				return []string{"healthy"}
			}
			output = append(output, fmt.Sprintf("%s %s: %s", r.Code, r.Status, r.Title))
			for _, f := range r.Findings {
				if !hasSeverity(r.Code, f.Severity) {
					t.Errorf("%s: a finding with severity %s is not documented", r.Code, f.Severity)
				}
				output = append(output, strings.Split(fmt.Sprintf("%s: %s; remedy: %s", f.Object, f.Message, f.Remedy), "\n")...)
				output = append(output, f.Evidence...)
			}
		default:
			t.Fatalf("unknown command %s", line)
		}
		return output
	})
}

// TestReleaseImageRegistry lets VMs reach the registry, or not, in a site whose HostedCluster has a release image.
func TestReleaseImageRegistry(t *testing.T) {
	const (
		image      = "quay.io/openshift-release-dev/ocp-release@sha256:1"
		platform   = "platform: {type: KubeVirt}}"
		gateway    = "gateway: 192.0.2.1, "
		components = "  infraComponents:\n"
		dns        = "dns: {serverIP: 192.0.2.3}"
		dhcp       = "dhcp: {serverIP: 192.0.2.2, "
		deny       = "dns: {serverIP: 192.0.2.3, forward: Deny}"
		network    = "networks: [{name: vlan, multus: {networkName: clusters/vlan100}}]"
		nodePool   = "kubevirt: {additionalNetworks"
		vmi        = "kind: VirtualMachineInstance"
		mirrors    = "platform: {type: KubeVirt}, imageContentSources: [{source: quay.io/openshift-release, mirrors: [other.example.net/x]}, " +
			"{source: quay.io/openshift-release-dev, mirrors: ['mirror.example.net:5000/ocp', quay.io/mirror]}]}"
	)
	egress := func(text string) string { return "  egress: " + text + "\n" + components }
	for _, tc := range []struct {
		name  string
		image string // empty for that above
		pairs []string
		want  string // severity; empty for no finding
		says  string
	}{
		{name: "router"},
		{name: "no router", pairs: []string{gateway, ""}, want: "warn", says: "networkConfig.gateway is empty"},
		{name: "no default route", pairs: []string{dhcp, dhcp + "defaultRoute: false, "}, want: "warn", says: "infraComponents.dhcp.defaultRoute is false"},
		{name: "denied", pairs: []string{dns, deny}, want: "fail", says: "spec.infraComponents.dns.forward of Infra clusters/demo is Deny"},
		{name: "no router and denied", pairs: []string{gateway, "", dns, deny}, want: "fail", says: "add quay.io to spec.egress.hosts"},
		{name: "name of the cluster", image: "registry.demo.example.com/x", want: "fail", says: "add an address of registry.demo.example.com to spec.infraComponents.dns.records"},
		{name: "egress", pairs: []string{gateway, "", dns, deny, components, egress("{hosts: [quay.io]}")}},
		{name: "egress by wildcard", image: "eu.quay.io/x", pairs: []string{gateway, "", dns, deny, components, egress(`{hosts: ["*.quay.io"]}`)}},
		{name: "egress of all names", pairs: []string{gateway, "", dns, deny, components, egress(`{hosts: ["*"], allowAll: true}`)}},
		{name: "egress of another name", pairs: []string{gateway, "", components, egress("{hosts: [example.net]}")}, want: "warn", says: "quay.io"},
		{name: "egress of a ProxyServer", pairs: []string{gateway, "", "{infraRef: {name: demo}, networkConfig", "{infraRef: {name: demo}, egress: {hosts: [quay.io]}, networkConfig"}},
		{name: "port", image: "quay.io:8443/x", pairs: []string{gateway, "", components, egress("{hosts: [quay.io]}")}, want: "warn", says: "add 8443 to spec.egress.ports"},
		{name: "port of egress", image: "quay.io:8443/x", pairs: []string{gateway, "", components, egress("{hosts: [quay.io], ports: [443, 8443]}")}},
		{name: "record", pairs: []string{gateway, "", dns, "dns: {serverIP: 192.0.2.3, forward: Deny, records: [{name: quay.io, type: A, values: [192.0.2.200]}]}"}},
		{name: "address on the VLAN", image: "192.0.2.200:5000/x", pairs: []string{gateway, ""}},
		{name: "address elsewhere", image: "198.51.100.1/x", pairs: []string{gateway, ""}, want: "warn", says: "networkConfig.gateway"},
		{name: "mirror", pairs: []string{gateway, "", platform, mirrors, components, egress("{hosts: [mirror.example.net], ports: [5000]}")}},
		{name: "no mirror", pairs: []string{gateway, "", platform, mirrors}, want: "warn", says: "from mirror.example.net:5000: "},
		{name: "pod network", pairs: []string{gateway, "", network, network[:len(network)-1] + ", {name: default, pod: {}}]"}},
		{name: "unknown network", pairs: []string{gateway, "", network, network[:len(network)-1] + ", {name: second, multus: {networkName: clusters/other}}]"}},
		{name: "no VM on the network", pairs: []string{gateway, "", vmi, "kind: Other"}},
		{name: "NodePool without the pod network", pairs: []string{gateway, "", vmi, "kind: Other", nodePool, "kubevirt: {attachDefaultNetwork: false, additionalNetworks"}, want: "warn"},
		{name: "HTTP proxy", pairs: []string{gateway, "", platform, platform[:len(platform)-1] + ", configuration: {proxy: {httpsProxy: 'http://u:p@192.0.2.9:3128'}}}"}},
		{name: "DNS servers of another interface", pairs: []string{dns, deny, dhcp, dhcp + "dns: false, "}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const release = "dns: {baseDomain: example.com}"
			pairs := append(tc.pairs, release, release+", release: {image: '"+cmp.Or(tc.image, image)+"'}")
			d := Diagnose(load(t, nil, pairs...), Added{}, func(code string) bool { return code == "OOOI-DNS-009" })
			got := ""
			if r := d.Root(); r != nil {
				got = string(r.Status)
			}
			if text := show(t, d, true); got != tc.want || !strings.Contains(text, tc.says) {
				t.Errorf("got %q, want %q that says %q:\n%s", got, tc.want, tc.says, text)
			}
		})
	}
}

// TestDriftIsTheRoot expects a component's pod that crashes, or does not exist, to be a consequence of the component's missing and edited objects only.
func TestDriftIsTheRoot(t *testing.T) {
	const pod, drifted = "OOOI-POD-002 fail", codeDrift + " fail"
	ref := func(kind string) model.Ref { return model.Ref{Kind: kind, Namespace: "clusters", Name: "x"} }
	const present, absent = "name: demo-dns-0\n  namespace: clusters", "name: demo-dns-0\n  namespace: elsewhere"
	for _, tc := range []struct {
		d             drift.Difference
		crashes, runs string // the root if the pod crashes or does not exist, and if it runs
	}{
		{drift.Difference{Object: ref("StatefulSet"), Change: drift.Changed, Component: "dns"}, drifted, codeDrift + " warn"},
		{drift.Difference{Object: ref("StatefulSet"), Change: drift.Changed, Component: "dhcp"}, pod, codeDrift + " warn"},
		{drift.Difference{Object: ref("RoleBinding"), Change: drift.Missing, Component: "dns"}, drifted, drifted},
		{drift.Difference{Object: ref("PodDisruptionBudget"), Change: drift.Missing, Component: "dns"}, pod, codeDrift + " warn"},
		{drift.Difference{Object: ref("StatefulSet"), Change: drift.Extra, Component: "dns"}, pod, codeDrift + " warn"},
		{drift.Difference{Object: ref("Infra"), Change: drift.Outdated}, pod, codeDrift + " warn"},
	} {
		for i, want := range []string{tc.crashes, tc.crashes, tc.runs} {
			s := load(t, nil, [][]string{{ready, crashing}, {present, absent, "status: {replicas: 1, updateRevision: dns-1}", "status: {}"}, {}}[i]...)
			findings, _ := DriftFindings(s, &drift.Report{Differences: []drift.Difference{tc.d}})
			d := Diagnose(s, Added{Drift: findings}, all)
			text := show(t, d, false)
			if r := d.Root(); r == nil || r.Code+" "+string(r.Status) != want || want == drifted && i < 2 && !strings.Contains(text, "possible consequences: "+
				"OOOI-POD-002") {
				t.Errorf("%+v: no %s in\n%s", tc.d, want, text)
			}
		}
	}
}

// TestConsequencesFollowTheirRoot breaks a pod and what it serves, and an unrelated component.
func TestConsequencesFollowTheirRoot(t *testing.T) {
	s := load(t, nil, `{type: DNSReady, status: "True", reason: Ready}`, `{type: DNSReady, status: "False", reason: DNSNotReady, message: no answer}`,
		`"ips": ["192.0.2.3"]`, `"ips": ["192.0.2.30"]`, "holderIdentity: clusters-demo/worker-a/vlan", "holderIdentity: clusters-demo/worker-b/vlan")
	d := Diagnose(s, Added{}, all)
	short, whole := show(t, d, false), show(t, d, true)
	for _, want := range []string{"fail   OOOI-NET-003", "possible consequences: OOOI-DNS-001; -o wide shows them", "fail   OOOI-DHCP-005", "Infra clusters/demo: 3 failed"} {
		if !strings.Contains(strings.ReplaceAll(short, "fail ", "fail "), want) && !strings.Contains(strings.Join(strings.Fields(short), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in\n%s", want, short)
		}
	}
	if !strings.Contains(whole, "possible consequence: OOOI-DNS-001") || !strings.Contains(whole, "no answer") {
		t.Errorf("-o wide does not show the consequence:\n%s", whole)
	}
	// A consequence is not the root of later ones.
	s = load(t, nil, `{type: DNSReady, status: "True", reason: Ready}`, `{type: DNSReady, status: "False", reason: DNSNotReady, message: no answer}`,
		"{name: vlan100, namespace: clusters}", "{name: vlan9, namespace: clusters}", ready, crashing)
	if text := show(t, Diagnose(s, Added{}, all), false); !strings.Contains(text, "possible consequences: OOOI-POD-002, OOOI-DNS-001;") {
		t.Errorf("OOOI-NET-001 has other consequences:\n%s", text)
	}
}

func TestProblemConditionsArePrintedOnce(t *testing.T) {
	s := load(t, answers{"coredhcp": podProblem(problem.OtherDHCPServer, "another DHCP server")},
		`{type: DHCPReady, status: "True", reason: Ready}`, `{type: DHCPReady, status: "False", reason: OtherDHCPServer, message: another}`)
	d := Diagnose(s, Added{}, all)
	if d.Summary[output.Failed] != 1 {
		t.Errorf("%d checks fail:\n%s", d.Summary[output.Failed], show(t, d, true))
	}
}

// TestCitesEventsForPresentContainers has an Event from before the pod's container started, one from later, and one that is repeated later.
func TestCitesEventsForPresentContainers(t *testing.T) {
	const hangs = `ips": ["192.0.2.3"]}]'
spec: {nodeName: node-a, containers: [{name: coredns}]}
status: {phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: coredns, state: {running: {startedAt: "2026-11-28T11:30:00Z"}}}]}
---
apiVersion: v1
kind: Event
metadata: {name: e, namespace: clusters}
type: Warning
reason: Unhealthy
message: probe failed
involvedObject: {kind: Pod, namespace: clusters, name: demo-dns-0, uid: pod-dns}
`
	for seen, cited := range map[string]bool{
		"lastTimestamp: 2026-11-28T11:20:00Z": false, "lastTimestamp: 2026-11-28T11:40:00Z": true,
		"eventTime: 2026-11-28T11:20:00.000000Z\nseries: {count: 2, lastObservedTime: 2026-11-28T11:40:00.000000Z}": true,
	} {
		d := Diagnose(load(t, nil, ready, hangs+seen+"\n"), Added{}, all)
		if text := show(t, d, true); strings.Contains(text, "event Unhealthy") != cited {
			t.Errorf("%s: %s", seen, text)
		}
	}
}

// TestListenersAreConsequencesOfBackends expects listeners whose handshakes fail to be a consequence of a backend that hangs.
func TestListenersAreConsequencesOfBackends(t *testing.T) {
	s := load(t, answers{"xdsd": podProblem(problem.BackendHandshakeFailing, "the process hangs")},
		`{type: Ready, status: "True", reason: DeploymentReady}`, `{type: Ready, status: "False", reason: ListenerNotReady, message: port 6443}`)
	if text := show(t, Diagnose(s, Added{}, all), false); !strings.HasPrefix(text, "fail   OOOI-PRX-018") || !strings.Contains(text, "possible consequences: "+
		"OOOI-PRX-004;") {
		t.Error(text)
	}
}

// TestMissingDataIsNotPassed expects checks whose data was not read to be skipped, also checks of outdated conditions.
func TestMissingDataIsNotPassed(t *testing.T) {
	d := Diagnose(load(t, nil, "availableReplicas: 2", "availableReplicas: 0"), Added{Undrifted: "no permission"}, all)
	for _, r := range d.Results {
		switch want := slices.Contains([]string{"OOOI-DHCP-001", "OOOI-DNS-001", "OOOI-PRX-004", codeDrift}, r.Code); {
		case want && r.Status != output.Skipped:
			t.Errorf("%s has status %s", r.Code, r.Status)
		case r.Status == output.Skipped && r.Reason == "":
			t.Errorf("%s is skipped without a reason", r.Code)
		}
	}
	if text := show(t, d, false); !strings.Contains(text, "some data could not be read") {
		t.Error(text)
	}
}

func TestPanicIsOneBrokenCheck(t *testing.T) {
	d := &Diagnosis{Summary: map[output.Result]int{}}
	d.run(&Site{Site: load(t, nil)}, []Stage{{"x", []Check{{Code: "OOOI-X-001", Run: func(*Site) []Finding { panic("oops") }}, {Code: "OOOI-X-002", Run: func(*Site) []Finding { return nil }}}}})
	if len(d.Results) != 2 || d.Results[0].Status != output.Broken || d.Results[1].Status != output.Passed {
		t.Errorf("%+v", d.Results)
	}
}

// TestChecksAreComplete compares the stages with the kinds of problems, and expects texts for the documentation.
func TestChecksAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if seen[c.Code] || !regexp.MustCompile(`^OOOI-[A-Z]+-\d{3}$`).MatchString(c.Code) || c.Title == "" || c.About == "" || c.Run == nil {
			t.Errorf("check %s %q is incomplete or exists twice", c.Code, c.Title)
		}
		seen[c.Code] = true
		if !slices.ContainsFunc(problem.Kinds, func(k problem.Kind) bool { return k.Check == c.Code }) && faults[c.Code] == nil {
			t.Errorf("no finding of %s is documented", c.Code)
		}
	}
	for code := range faults {
		if !seen[code] {
			t.Errorf("findings of %s are documented, which does not exist", code)
		}
	}
	for _, k := range problem.Kinds {
		if !seen[k.Check] || k.Remedy == "" {
			t.Errorf("problems %s belong to check %q, which does not exist, or have no remedy", k.Code, k.Check)
		}
	}
}

// root is the directory of the repository.
const root = "../../.."

func TestClusterRoleHasPermissionsForChecks(t *testing.T) {
	text, err := yaml.Marshal(Role())
	lab.Must(t, err)
	const head = "# Exactly the permissions that the checks of 'kubectl oooi doctor' use. Generated from the checks by 'make golden'.\n"
	golden.Check(t, filepath.Join(root, "manifests", "doctor", "clusterrole.yaml"), head+string(text))
}

// TestChecksAreDocumented compares the generated pages with docs/reference, which must not contain other pages with such names.
func TestChecksAreDocumented(t *testing.T) {
	folder := filepath.Join(root, "docs", "reference")
	pages := Docs()
	for name, text := range pages {
		golden.Check(t, filepath.Join(folder, name), text)
	}
	entries, err := os.ReadDir(folder)
	lab.Must(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "doctor-") && pages[e.Name()] == "" {
			t.Errorf("%s documents no check; delete it", e.Name())
		}
	}
}
