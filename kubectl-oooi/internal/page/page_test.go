package page

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/registry"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
	"github.com/densityops/oooi/kubectl-oooi/internal/verify"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// hostile is a name that would end an element, an attribute or a label.
const hostile = `x"]);--></svg><script>alert(1)</script>`

// site returns a site with VMs, and a test in which the scenario broken has failed; it has no test if broken is "none".
func site(vms int, broken string) *Site {
	ready := metav1.ConditionTrue
	s := &Site{
		Infra: &v1alpha1.Infra{Spec: v1alpha1.InfraSpec{
			NetworkConfig:   v1alpha1.NetworkConfig{Gateway: "192.0.2.1", DNSServers: []string{"192.0.2.53"}},
			InfraComponents: v1alpha1.InfraComponents{DNS: &v1alpha1.InfraDNS{}},
			Egress:          &v1alpha1.Egress{Hosts: []v1alpha1.EgressHost{"*.example.org", "time.example.com"}},
		}},
		Registries: []*registry.Registry{{Host: "registry.example.com", Port: 443, Via: registry.Proxy}},
		Status: &status.Report{
			Metadata: output.Metadata{Name: "demo", Namespace: "clusters"}, Network: "clusters/vlan50", CIDRs: []string{"192.0.2.0/24"}, Ready: status.Summary{Status: ready},
			Components: []status.Component{
				{Name: v1alpha1.ComponentDHCP, Enabled: true, Ready: ready, Addresses: []string{"192.0.2.2"}, Pods: []status.Pod{{Name: "demo-dhcp-0", Ready: true, Node: "node-a"}}},
				{Name: v1alpha1.ComponentDNS, Enabled: true, Ready: metav1.ConditionFalse, Addresses: []string{"192.0.2.3"}, Pods: []status.Pod{{Name: "demo-dns-0", Reason: "image cannot be pulled"}}},
				{Name: v1alpha1.ComponentProxy, Enabled: true, Ready: ready, Addresses: []string{"192.0.2.4"}},
			},
			FloatingAddress: &status.FloatingAddress{Addresses: []string{"192.0.2.4"}, Holder: "demo-proxy-192-0-2-5-0"},
			Applications:    &status.Applications{Phase: v1alpha1.AppsIngressReady, Addresses: []string{"192.0.2.200"}},
		},
		Cluster: &model.Cluster{Hostnames: []model.Hostname{
			{Name: "api.demo.example.com", Endpoints: []model.Endpoint{{Role: model.RoleAPI, Port: 6443, Source: "spec.services[APIServer]"}}},
			{Name: "oauth.demo.example.com", Endpoints: []model.Endpoint{{Role: model.RoleOAuth, Port: 443, Source: "spec.services[OAuthServer]"}}},
		}},
	}
	for i := range vms {
		name := fmt.Sprintf("worker-%d", i)
		if i == 1 {
			name = hostile
		}
		s.Leases = append(s.Leases, &leases.Lease{VM: "clusters-demo/" + name, Hostname: name, Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), State: "bound"})
	}
	if broken == "none" {
		return s
	}
	s.Test = &verify.Report{Metadata: s.Status.Metadata, Image: "registry.example.com/oooi@sha256:0", Summary: map[output.Result]int{}}
	took := metav1.Duration{Duration: 1234 * time.Microsecond}
	for _, one := range verify.Scenarios() {
		if one.Group == verify.GroupDisruption {
			continue
		}
		r := verify.Result{Name: one.Name, Group: one.Group, Title: one.Title, Status: output.Passed}
		for _, c := range one.Clients {
			request := verify.Request{Client: c, Label: one.Name, Took: took}
			if one.Name == broken {
				r.Status, r.Remedy, request.Problem = output.Failed, one.Remedy, "connection refused"
			}
			r.Requests = append(r.Requests, request)
		}
		s.Test.Results = append(s.Test.Results, r)
		s.Test.Summary[r.Status]++
	}
	return s
}

// TestLanguages compares drawings of a healthy and of a broken site with golden files.
func TestLanguages(t *testing.T) {
	sites := map[string]*Site{"healthy": site(3, ""), "broken": site(12, "tls-api"), "untested": site(0, "none")}
	for name, s := range sites {
		for language, draw := range map[string]func(io.Writer, []*Graph) error{"dot": Dot, "mmd": Mermaid} {
			var b bytes.Buffer
			lab.Must(t, draw(&b, []*Graph{NewGraph(s)}))
			golden.Check(t, filepath.Join("testdata", name+"."+language), b.String())
		}
	}
}

// pageOf returns the page about sites.
func pageOf(t *testing.T, sites ...*Site) string {
	t.Helper()
	var b bytes.Buffer
	lab.Must(t, HTML(&b, sites, "v1", time.Unix(0, 0)))
	return b.String()
}

// diagnosed returns a site with findings of doctor: an upstream resolver that fails, with a consequence, and a VM.
func diagnosed() *Site {
	s := site(2, "none")
	s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUpstreamReady, Status: metav1.ConditionFalse}}
	s.Diagnosis = &doctor.Diagnosis{Metadata: s.Status.Metadata, Summary: map[output.Result]int{output.Failed: 2, output.Warned: 1, output.Passed: 1}}
	s.Diagnosis.Results = []doctor.Result{
		{Code: "OOOI-DNS-007", Status: output.Failed, Findings: []doctor.Finding{{
			Severity: doctor.Fail, Component: v1alpha1.ComponentDNS, Message: hostile, Remedy: "repair it", Evidence: []string{hostile},
		}}},
		{Code: "OOOI-DNS-001", Status: output.Failed, Findings: []doctor.Finding{{
			Severity: doctor.Fail, Component: v1alpha1.ComponentDNS, ConsequenceOf: "OOOI-DNS-007",
		}}},
		{Code: "OOOI-DHCP-005", Status: output.Warned, Findings: []doctor.Finding{{Severity: doctor.Warn, Component: "vms"}}},
		{Code: "OOOI-PRX-003", Title: "configuration is valid", Status: output.Passed},
	}
	return s
}

// TestPageIsSelfContained checks pages for anything that a browser would load or run.
func TestPageIsSelfContained(t *testing.T) {
	sites := []*Site{site(200, ""), site(2, "apps-http"), diagnosed()}
	for range 97 {
		sites = append(sites, &Site{Diagnosis: &doctor.Diagnosis{Metadata: output.Metadata{Name: "demo", Namespace: "clusters"}}})
	}
	page := pageOf(t, sites...)
	for _, bad := range []string{"<script", "src=", "url(", "@import", "<link", "<iframe", "http://", "https://", "javascript:", " style=", " on" + "click"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{
		"Content-Security-Policy", "prefers-color-scheme", "@media print", `lang="en"`,
		`href="#site-1"`, `id="site-1"`, `id="site-99"`, "<li>Lease ", "and 192 more VMs", "1.2ms",
		"OOOI-DNS-007", "repair it", "from pod: apps-http: connection refused", "1 of 28 scenarios failed", "2 of 4 checks failed",
		"98 of 100 sites work", "scenarios passed: 27",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	if bad, good := strings.LastIndex(page, "2 of 4 checks failed"), strings.Index(page, "28 scenarios passed"); bad > good {
		t.Error("sites that work come before those with failures")
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
			t.Errorf("a drawing is not valid XML: %v", err)
		}
	}
}

// TestPageDoesNotHideWhatIsUnknown expects checks that could not be performed among the findings, and no site to work whose data could
// not be read.
func TestPageDoesNotHideWhatIsUnknown(t *testing.T) {
	for result, want := range map[output.Result][]string{
		output.Broken:  {"1 of 1 checks failed", "could not be performed: all is well", "it panicked"},
		output.Skipped: {"no problems found; some data could not be read", "checks skipped: 1", "all is well (it panicked)"},
	} {
		s := &Site{Diagnosis: &doctor.Diagnosis{
			Results: []doctor.Result{{Code: "OOOI-X-001", Title: "all is well", Status: result, Reason: "it panicked"}}, Summary: map[output.Result]int{result: 1},
		}}
		page := pageOf(t, s, site(1, ""))
		for _, text := range append(want, "1 of 2 sites work") {
			if !strings.Contains(page, text) {
				t.Errorf("with the result %s, the page does not contain %q", result, text)
			}
		}
	}
}

// fill replaces all texts in a value, except enumerations.
func fill(v reflect.Value, text string) {
	switch v.Kind() { //nolint:exhaustive // others have no texts
	case reflect.Pointer:
		if !v.IsNil() {
			fill(v.Elem(), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() && field.Name != "State" {
				fill(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(text)
		}
	}
}

// structure returns the elements of a page, each with the names of its attributes.
func structure(t *testing.T, page string) []string {
	t.Helper()
	var list []string
	for z := html.NewTokenizer(strings.NewReader(page)); ; {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			return list
		case html.TextToken:
		default:
			token := z.Token()
			line := kind.String() + " " + token.Data
			for _, a := range token.Attr {
				line += " " + a.Key
				if a.Key == "href" && !strings.HasPrefix(a.Val, "#") {
					t.Errorf("a link leads to %q", a.Val)
				}
			}
			list = append(list, line)
		}
	}
}

// FuzzPage expects texts of a site to change no element of its page.
func FuzzPage(f *testing.F) {
	for _, text := range []string{
		hostile, `" onclick="alert(1)`, "' autofocus '", "<!--", "]]>", "</style><b>", "</title><b>", "&lt;b&gt;",
		"&#60;b&#62;", "\x00<\xff>", "\u202e", "\n",
	} {
		f.Add(text)
	}
	filled := func(t *testing.T, text string) string {
		t.Helper()
		sites := []*Site{site(2, "tls-api"), diagnosed()}
		fill(reflect.ValueOf(sites), text)
		return pageOf(t, sites...)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" {
			t.Skip("the page omits empty texts")
		}
		page := filled(t, text)
		if diff := cmp.Diff(structure(t, filled(t, "text")), structure(t, page)); diff != "" {
			t.Errorf("%q changes the page: %s", text, diff)
		}
		words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
		if !strings.Contains(words(html.UnescapeString(page)), words(output.EscapedText(strings.ToValidUTF8(text, "\ufffd")))) {
			t.Errorf("the page does not show %q", text)
		}
	})
}

// TestFindingsShowInTheDrawing expects findings at the elements that they are about.
func TestFindingsShowInTheDrawing(t *testing.T) {
	g := NewGraph(diagnosed())
	for id, want := range map[string]State{upstreamNode: Bad, vlanNode: Warn, v1alpha1.ComponentDHCP: Good, serviceNode + "oauth": Unknown} {
		if got := g.node(id).State; got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	at := slices.IndexFunc(g.Edges, func(e Edge) bool { return e.To == upstreamNode })
	if want := (Edge{v1alpha1.ComponentDNS, upstreamNode, Bad, "DNS-007"}); g.Edges[at] != want {
		t.Errorf("the connection to the upstream resolvers is %v", g.Edges[at])
	}
}

// failedPaths returns the connections of a site that failed, as "FROM TO".
func failedPaths(s *Site) string {
	var list []string
	for _, e := range NewGraph(s).Edges {
		if e.State == Bad {
			list = append(list, e.From+" "+e.To)
		}
	}
	return strings.Join(list, ", ")
}

// TestPathsShowTheTest expects a failed scenario on the connections that it uses, and on no others.
func TestPathsShowTheTest(t *testing.T) {
	for broken, want := range map[string]string{
		"":                  "",
		"dhcp-lease":        "vlan dhcp",
		"dns-pod-tcp":       "pods dns",
		"mtu-vlan":          "vlan dns",
		"tls-oauth":         "proxy service-oauth",
		"dns-vlan-upstream": "dns upstream",
		"egress-registry":   "proxy egress",
		"apps-http":         "vlan apps, pods apps",
		"isolation-proxy":   "", // not a connection of the site
	} {
		if got := failedPaths(site(1, broken)); got != want {
			t.Errorf("with a failure of %q, the failed connections are %q, want %q", broken, got, want)
		}
	}
	for via, want := range map[registry.Via]string{registry.Router: "router egress", registry.VLAN: "vlan egress", "": ""} {
		s := site(1, "egress-registry")
		if s.Registries[0].Via, s.Infra.Spec.Egress = via, nil; failedPaths(s) != want {
			t.Errorf("if VMs reach the registry by %q, the failed connections are %q, want %q", via, failedPaths(s), want)
		}
	}
	s := site(1, "tls-api")
	s.Test.Results = slices.DeleteFunc(s.Test.Results, func(r verify.Result) bool { return r.Status == output.Passed && strings.HasPrefix(r.Name, "tls-") })
	if got, want := failedPaths(s), "vlan proxy, pods proxy, proxy service-kube-apiserver"; got != want {
		t.Errorf("if no TLS scenario passes, the failed connections are %q, want %q", got, want)
	}
}
