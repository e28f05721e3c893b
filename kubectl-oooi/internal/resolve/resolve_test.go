package resolve_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/watch"
	"github.com/densityops/oooi/kubectl-oooi/internal/resolve"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// readModel reads a directory of the model's test data.
func readModel(t *testing.T, name string) *model.Objects {
	t.Helper()
	objects, err := watch.ReadManifests("../../../internal/model/testdata/"+name, resolve.Options())
	lab.Must(t, err)
	return objects
}

// TestReasons resolves a name of every kind in the test data of the model.
func TestReasons(t *testing.T) {
	var b strings.Builder
	for _, tc := range []struct{ data, name string }{
		{"one-cluster", "api.demo.lab.example.com"},                            // defined by several fields
		{"one-cluster", "ignition-server-clusters-demo.apps.mgmt.example.com"}, // defined by a Route
		{"one-cluster", "api-int.demo.lab.example.com"},                        // by convention
		{"one-cluster", "ns.dns.demo.lab.example.com"},                         // the name server
		{"one-cluster", "demo.lab.example.com"},                                // a zone
		{"one-cluster", "www.apps.demo.lab.example.com"},                       // an apps name without an apps address
		{"one-cluster", "typo.demo.lab.example.com"},                           // no such name
		{"proxy-infra", "oauth.demo.lab.example.com"},                          // no address for pods, and a problem that names it
		{"apps-sources", "www.apps.static.example.com"},                        // an apps address from the spec of the Infra
		{"apps-sources", "www.apps.mirrored.example.com"},                      // an apps address from a Service of the management cluster
		{"apps-sources", "console-openshift-console.apps.hosted.example.com"},  // an apps address that control found
		{"apps-several-vlans", "api.demo.example.com"},                         // a cluster on several VLANs
		{"records", "one.demo.example.com"},                                    // a loop of aliases
		{"records", "kubernetes.default.svc.cluster.local"},                    // a Service of the management cluster
		{"proxy-egress", "cdn.quay.io"},                                        // outside of the cluster
		{"conflicts", "api.demo.example.com"},                                  // claimed by two clusters
		{"broken", "www.example.org"},                                          // objects that cannot be decoded
	} {
		report, err := resolve.Compute(readModel(t, tc.data), resolve.Query{Name: tc.name})
		lab.Must(t, err)
		b.WriteString("# " + tc.data + "\n")
		lab.Must(t, resolve.Text(&b, report))
		for _, p := range report.Problems {
			b.WriteString("problem: " + p.String() + "\n")
		}
		b.WriteString("\n")
	}
	golden.Check(t, "testdata/reasons.golden", b.String())
}

// TestOtherNamesOnTheVLAN resolves a name that nothing serves.
func TestOtherNamesOnTheVLAN(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*v1alpha1.InfraSpec)
		want   resolve.Result
		where  string
	}{
		{"forwarded", func(*v1alpha1.InfraSpec) {}, resolve.PassedOn, ""},
		{"closed", func(s *v1alpha1.InfraSpec) { s.InfraComponents.DNS.Forward = v1alpha1.DNSForwardDeny }, resolve.NotFound, ""},
		{"all names allowed", func(s *v1alpha1.InfraSpec) { s.Egress.AllowAll = true }, resolve.Answered, "[192.0.2.3 2001:db8::3]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := readModel(t, "proxy-egress")
			tc.change(&objects.Infras[0].Spec)
			report, err := resolve.Compute(objects, resolve.Query{Name: "www.example.org", View: resolve.VLAN})
			lab.Must(t, err)
			if v := report.Views[0]; v.Result != tc.want || tc.where != "" && fmt.Sprint(v.Addresses) != tc.where {
				t.Errorf("%s %v, want %s %s", v.Result, v.Addresses, tc.want, tc.where)
			}
		})
	}
}

func TestSourceSelectsTheView(t *testing.T) {
	objects := readModel(t, "conflicts")
	snapshot := model.Build(objects, resolve.Options())
	for _, v := range snapshot.VLANs {
		for _, cidr := range v.CIDRs {
			report, err := resolve.Compute(objects, resolve.Query{Name: "www.example.org", Source: cidr.Addr().Next()})
			lab.Must(t, err)
			found := false
			for _, view := range report.Views {
				found = found || view.VLAN == v.Name
			}
			if !found {
				t.Errorf("a client in %s has the views %+v, want VLAN %s", cidr, report.Views, v.Name)
			}
		}
	}
	report, err := resolve.Compute(objects, resolve.Query{Name: "www.example.org", Source: netip.MustParseAddr("203.0.113.9")})
	if err != nil || len(report.Views) != 1 || report.Views[0].View != resolve.Pod {
		t.Errorf("a client outside of all VLANs has %+v, %v; want the pod view", report, err)
	}
}

func TestParseName(t *testing.T) {
	for text, want := range map[string]string{
		"API.Demo.example.com.": "api.demo.example.com", "_ldap._tcp.example.com": "_ldap._tcp.example.com", "a": "a",
		"": "", ".": "", "a..b": "", "https://a": "", "a:443": "", strings.Repeat("a", 64) + ".com": "", strings.Repeat("a.", 127) + "aa": "",
	} {
		if got, err := resolve.ParseName(text); got != want || (err != nil) != (want == "") {
			t.Errorf("ParseName(%q) = %q, %v", text, got, err)
		}
	}
}
