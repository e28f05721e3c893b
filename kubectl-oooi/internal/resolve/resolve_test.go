package resolve_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
	"github.com/densityops/oooi/test/golden"
)

func read(t *testing.T, name string) *model.Objects {
	t.Helper()
	objects, err := watch.ReadManifests("../../../internal/model/testdata/"+name, resolve.Options())
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestReasons asks for a name of every kind in the model's own test data.
func TestReasons(t *testing.T) {
	var b strings.Builder
	for _, tc := range []struct{ data, name string }{
		{"one-cluster", "api.demo.lab.example.com"},                            // that several fields name
		{"one-cluster", "ignition-server-clusters-demo.apps.mgmt.example.com"}, // that a Route names
		{"one-cluster", "api-int.demo.lab.example.com"},                        // by convention
		{"one-cluster", "ns.dns.demo.lab.example.com"},                         // the name server
		{"one-cluster", "demo.lab.example.com"},                                // a zone
		{"one-cluster", "www.apps.demo.lab.example.com"},                       // an application that nobody serves
		{"one-cluster", "nobody.demo.lab.example.com"},                         // nothing
		{"proxy-infra", "oauth.demo.lab.example.com"},                          // without an address for pods, and with a problem of its own
		{"apps-sources", "www.apps.static.example.com"},                        // an application, by the Infra's spec
		{"apps-sources", "www.apps.mirrored.example.com"},                      // by a Service of the management cluster
		{"apps-sources", "console-openshift-console.apps.hosted.example.com"},  // by what control has found
		{"conflicts", "api.demo.example.com"},                                  // that two clusters claim
		{"broken", "www.example.org"},                                          // where objects cannot be read
	} {
		report, err := resolve.Ask(read(t, tc.data), resolve.Query{Name: tc.name})
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("# " + tc.data + "\n")
		if err := resolve.Text(&b, report); err != nil {
			t.Fatal(err)
		}
		for _, p := range report.Problems {
			b.WriteString("problem: " + p.String() + "\n")
		}
		b.WriteString("\n")
	}
	golden.Check(t, "testdata/reasons.golden", b.String())
}

func TestTheSourceSaysTheView(t *testing.T) {
	objects := read(t, "conflicts")
	snapshot := model.Build(objects, resolve.Options())
	for _, v := range snapshot.VLANs {
		for _, cidr := range v.CIDRs {
			report, err := resolve.Ask(objects, resolve.Query{Name: "www.example.org", Source: cidr.Addr().Next()})
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, view := range report.Views {
				found = found || view.VLAN == v.Name
			}
			if !found {
				t.Errorf("a client in %s is on %+v, want %s", cidr, report.Views, v.Name)
			}
		}
	}
	report, err := resolve.Ask(objects, resolve.Query{Name: "www.example.org", Source: netip.MustParseAddr("203.0.113.9")})
	if err != nil || len(report.Views) != 1 || report.Views[0].View != resolve.Pod {
		t.Errorf("a client of no VLAN sees %+v, %v", report, err)
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]string{
		"API.Demo.example.com.": "api.demo.example.com", "_ldap._tcp.example.com": "_ldap._tcp.example.com", "a": "a",
		"": "", ".": "", "a..b": "", "https://a": "", "a:443": "", strings.Repeat("a", 64) + ".com": "", strings.Repeat("a.", 127) + "aa": "",
	} {
		if got, err := resolve.ParseName(text); got != want || (err != nil) != (want == "") {
			t.Errorf("%q becomes %q, %v", text, got, err)
		}
	}
}
