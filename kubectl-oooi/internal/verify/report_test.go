package verify

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/probe"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestEvaluate evaluates scenarios whose requests succeed, fail, have not been performed, or do not exist.
func TestEvaluate(t *testing.T) {
	scenarios := []Scenario{{Name: "good"}, {Name: "bad"}, {Name: "needs bad", Needs: "bad"}, {Name: "disabled"}, {Name: "lost"}, {Name: "empty"}}
	p := &plan{steps: map[string][]*step{}, why: map[string][]string{"disabled": {"it is disabled"}}, clients: map[Client]*requests{VLAN: {index: map[string]int{}}}}
	for i := range scenarios {
		p.steps[scenarios[i].Name] = nil
	}
	for _, s := range []struct{ scenario, name string }{{"good", "a"}, {"bad", "a"}, {"bad", "b"}, {"needs bad", "a"}, {"lost", "c"}} {
		p.add(s.scenario, VLAN, s.name, probe.Step{DNS: &probe.Query{Network: "udp", Name: s.name, Type: "A"}}, answered)
	}
	of := p.clients[VLAN]
	if len(of.list) != 3 {
		t.Errorf("%d requests, want 3: scenarios share equal ones", len(of.list))
	}
	of.outcomes = []*probe.Outcome{{Step: 0, Took: time.Millisecond}, {Step: 1, Error: "timeout"}, nil}
	r := &Report{Summary: map[output.Result]int{}}
	for i := range scenarios {
		r.add(p.evaluate(&scenarios[i], r.Results))
	}
	var got []string
	for _, one := range r.Results {
		got = append(got, string(one.Status)+" "+one.Reason)
	}
	want := []string{
		"pass ", "fail ", "skip blocked by bad", "skip it is disabled", "error the client has not performed all requests", "skip the site has nothing to test",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !r.Failed() {
		t.Error("the report has not failed")
	}
	of.outcomes, of.err = make([]*probe.Outcome, 3), errors.New("the pod does not start")
	if one := p.evaluate(&scenarios[0], r.Results); one.Status != output.Broken || one.Reason != "the pod does not start" {
		t.Errorf("without a client the result is %+v", one)
	}
}

// TestReportFormats prints a report as text and for JUnit.
func TestReportFormats(t *testing.T) {
	second := metav1.Duration{Duration: time.Second}
	r := &Report{Metadata: output.Metadata{Name: "demo", Namespace: "clusters"}, Started: metav1.NewTime(time.Unix(0, 0)), Duration: second, Summary: map[output.Result]int{}}
	r.add(Result{Name: "dns-vlan-names", Group: GroupDNS, Title: "names resolve", Status: output.Passed, Requests: []Request{{Client: VLAN, Label: "api", Took: second}}})
	r.add(Result{
		Name: "tls-api", Group: GroupTLS, Title: "VMs reach it", Status: output.Failed, Remedy: "repair it",
		Requests: []Request{{Client: VLAN, Label: "api", Took: second}, {Client: Pod, Label: "api & others", Problem: "refused"}},
	})
	r.add(Result{Name: "apps-http", Group: GroupApps, Title: "VMs reach apps", Status: output.Skipped, Reason: "no apps"})
	r.add(Result{Name: "mtu-vlan", Group: GroupNetwork, Title: "packets pass", Status: output.Broken, Reason: "no pod"})
	r.add(Result{Name: "apps-https", Group: GroupApps, Title: "VMs reach apps", Status: output.Passed, Requests: []Request{{Client: VLAN, Label: "console", Took: second, Note: "it is not available"}}})
	var text, whole, junit bytes.Buffer
	lab.Must(t, errors.Join(r.Show(&text, false), r.Show(&whole, true), r.JUnit(&junit)))
	golden.Check(t, "testdata/report.txt", text.String())
	golden.Check(t, "testdata/report-wide.txt", whole.String())
	for _, want := range []string{
		`tests="5" failures="1" errors="1" skipped="1"`, `<failure message="VMs reach it">from pod: api &amp; others: refused&#xA;repair it</failure>`,
		`<error message="no pod"></error>`, `<skipped message="no apps"></skipped>`,
	} {
		if !strings.Contains(junit.String(), want) {
			t.Errorf("JUnit has no %s:\n%s", want, &junit)
		}
	}
}

// TestReportsAreSavedInBundles reads a report from a bundle, with what doctor prints about its results.
func TestReportsAreSavedInBundles(t *testing.T) {
	r := &Report{Metadata: output.Metadata{Name: "demo", Namespace: "clusters"}, Started: metav1.NewTime(time.Unix(0, 0).UTC()), Summary: map[output.Result]int{}}
	r.add(Result{Name: "dns-vlan-names", Title: "names resolve", Status: output.Passed, Requests: []Request{{Client: VLAN, Label: "api"}}})
	r.add(Result{
		Name: "tls-api", Title: "VMs reach it", Status: output.Failed, Remedy: "repair it", Requests: []Request{{Client: VLAN, Label: "api"}, {Client: Pod, Label: "api", Problem: "refused"}},
	})
	r.add(Result{Name: "mtu-vlan", Title: "packets pass", Status: output.Broken, Reason: "no pod"})
	r.add(Result{Name: "apps-http", Title: "VMs reach apps", Status: output.Skipped, Reason: "no apps"})
	facts := site.NewFacts(time.Unix(0, 0))
	lab.Must(t, r.Save(facts))
	file, err := os.Create(filepath.Join(t.TempDir(), "bundle.tar.gz"))
	lab.Must(t, err)
	lab.Must(t, errors.Join(facts.Save(file), file.Close()))
	loaded, err := site.Load(file.Name(), func(text string) { t.Error(text) })
	lab.Must(t, err)
	got, err := Saved(loaded, "clusters/demo")
	if err != nil || got == nil {
		t.Fatalf("the bundle has the report %v: %v", got, err)
	}
	want := []*Failure{
		nil, {Message: "not met: VMs reach it", Evidence: []string{"from pod: api: refused"}, Remedy: "repair it"}, {Message: "could not be tested: packets pass", Evidence: []string{"no pod"}}, nil,
	}
	for i := range got.Results {
		if f := got.Results[i].Failure(); !reflect.DeepEqual(f, want[i]) {
			t.Errorf("%s: got %+v, want %+v", got.Results[i].Name, f, want[i])
		}
	}
	if other, err := Saved(loaded, "clusters/other"); other != nil || err != nil {
		t.Errorf("another Infra has the report %v: %v", other, err)
	}
}

// TestQuickScenariosAreIndependent expects no scenario that needs one that is not quick, or another hosted cluster.
func TestQuickScenariosAreIndependent(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Quick() {
		if s.Group == GroupIsolation || s.Group == GroupDisruption || s.Needs != "" && !seen[s.Needs] {
			t.Errorf("scenario %s is not quick, or needs %q", s.Name, s.Needs)
		}
		seen[s.Name] = true
	}
	if !seen[dhcpLease] || !seen["dns-pod-names"] || !seen["tls-api"] || !seen["apps-https"] || !seen["mtu-vlan"] {
		t.Errorf("quick scenarios are %v", seen)
	}
}

// TestScenariosAreNamedOnce checks the table: names are unique, and a scenario comes after the one that it needs.
func TestScenariosAreNamedOnce(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Scenarios() {
		if s.Title == "" || s.Remedy == "" || s.Group == "" || len(s.Clients) == 0 {
			t.Errorf("scenario %q is incomplete", s.Name)
		}
		if seen[s.Name] || s.Needs != "" && !seen[s.Needs] {
			t.Errorf("scenario %q is not unique, or precedes the one that it needs", s.Name)
		}
		seen[s.Name] = true
	}
}

// TestClientsAreRegisteredByValidNames uses an Infra whose name is too long for a label with a suffix.
func TestClientsAreRegisteredByValidNames(t *testing.T) {
	for _, infra := range []string{"demo", strings.Repeat("x", 63), "a.b"} {
		if name := hostname(infra); len(name) > 63 || strings.Contains(name, ".") || !strings.Contains(name, "-test-") {
			t.Errorf("the host name of a client of Infra %s is %s", infra, name)
		}
	}
	if mac := randomMAC().String(); len(mac) != 17 || !strings.ContainsAny(mac[1:2], "26ae") {
		t.Errorf("%s is not a locally administered unicast address", mac)
	}
}

// TestAddressesAreCompared compares a reply with the expected addresses.
func TestAddressesAreCompared(t *testing.T) {
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for want, r := range map[string]*probe.Reply{
		"": {Rcode: "NOERROR", Addresses: []netip.Addr{a}},
		"expected 192.0.2.1, got NOERROR 192.0.2.2": {Rcode: "NOERROR", Addresses: []netip.Addr{b}},
		"expected 192.0.2.1, got NXDOMAIN":          {Rcode: "NXDOMAIN"},
	} {
		if got := wantAddresses(r, []netip.Addr{a}); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
