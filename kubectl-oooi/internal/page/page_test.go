package page

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/leases"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
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
		Gateway: "192.0.2.1",
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

// TestPageIsSelfContained checks pages for anything that a browser would load or run, and for unescaped names.
func TestPageIsSelfContained(t *testing.T) {
	sites := []*Site{site(200, ""), site(2, "apps-http")}
	sites[1].Diagnosis = &doctor.Diagnosis{Summary: map[output.Result]int{output.Failed: 1}, Results: []doctor.Result{{
		Code: "OOOI-DNS-001", Status: output.Failed, Findings: []doctor.Finding{{Message: hostile, Remedy: "repair it", Evidence: []string{hostile}}},
	}}}
	for range 98 {
		sites = append(sites, &Site{Diagnosis: &doctor.Diagnosis{Metadata: output.Metadata{Name: "demo", Namespace: "clusters"}}})
	}
	var b bytes.Buffer
	lab.Must(t, HTML(&b, sites, "v1", time.Unix(0, 0)))
	text := b.String()
	for _, bad := range []string{"<script", "src=", "url(", "@import", "<link", "<iframe", "http://", "https://", "javascript:", " on" + "click"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	for _, want := range []string{
		"Content-Security-Policy", "prefers-color-scheme", "@media print", `lang="en"`, `href="#site-99"`, `id="site-99"`, "<td>Lease</td>", "and 192 more VMs", "1.2ms",
		"OOOI-DNS-001", "repair it", "from pod: apps-http: connection refused", "1 of 28 scenarios failed",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(text, -1) {
		if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil {
			t.Errorf("a drawing is not valid XML: %v", err)
		}
	}
}

// TestBoxesDoNotOverlap places the elements of sites of different sizes.
func TestBoxesDoNotOverlap(t *testing.T) {
	for _, s := range []*Site{site(0, "none"), site(200, "")} {
		d := NewGraph(s).Draw()
		for i, a := range d.Boxes {
			if a.X < 0 || a.Y < 0 || a.X+a.Width > d.Width || a.Y+a.Height > d.Height {
				t.Errorf("box %q is outside of the drawing", a.Text[0].Value)
			}
			for _, b := range d.Boxes[i+1:] {
				if a.X < b.X+b.Width && b.X < a.X+a.Width && a.Y < b.Y+b.Height && b.Y < a.Y+a.Height {
					t.Errorf("boxes %q and %q overlap", a.Text[0].Value, b.Text[0].Value)
				}
			}
		}
	}
}

// TestPathsShowTheTest expects a failed scenario on the connections that it uses, and on no others.
func TestPathsShowTheTest(t *testing.T) {
	for broken, want := range map[string][]string{
		"":                nil,
		"dhcp-lease":      {"vlan dhcp"},
		"dns-pod-tcp":     {"pods dns"},
		"mtu-vlan":        {"vlan dns"},
		"tls-oauth":       {"vlan proxy", "pods proxy", "proxy service-oauth"},
		"apps-http":       {"vlan apps", "pods apps"},
		"isolation-proxy": nil, // not a connection of the site
	} {
		var bad []string
		for _, e := range NewGraph(site(1, broken)).Edges {
			if e.State == Bad {
				bad = append(bad, e.From+" "+e.To)
			}
		}
		if fmt.Sprint(bad) != fmt.Sprint(want) {
			t.Errorf("with a failure of %q, the failed connections are %q, want %q", broken, bad, want)
		}
	}
}
