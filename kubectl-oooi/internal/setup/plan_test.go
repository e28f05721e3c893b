package setup

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/objects"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// TestPlanOfClusters checks what setup says before it changes anything, and the domains for the cluster DNS.
func TestPlanOfClusters(t *testing.T) {
	console := objects.ComponentRoute{Namespace: "openshift-console", Name: "console", Hostname: "console.example.org"}
	for _, tc := range []struct {
		name    string
		change  func(demo *objects.HostedCluster) *objects.HostedCluster // returns another cluster
		domains []string
		warning string // empty for none
		guarded string
	}{
		{"as in the example", func(*objects.HostedCluster) *objects.HostedCluster { return nil }, []string{"demo.example.com"}, "", "guard demo.example.com"},
		{"a custom hostname of the console", func(demo *objects.HostedCluster) *objects.HostedCluster {
			demo.Spec.Configuration = &objects.HostedClusterConfiguration{Ingress: &objects.IngressConfiguration{ComponentRoutes: []objects.ComponentRoute{console}}}
			return nil
		}, []string{"demo.example.com", "console.example.org"}, "", "guard console.example.org demo.example.com"},
		{"API server by a Route without a hostname", func(demo *objects.HostedCluster) *objects.HostedCluster {
			demo.Spec.Services = []objects.ServicePublishing{{Service: "APIServer", Strategy: objects.PublishingStrategy{Type: "Route"}}}
			return nil
		}, []string{"demo.example.com"}, "HyperShift never completes an API server", "guard demo.example.com"},
		{"in an apps domain of an older cluster", func(demo *objects.HostedCluster) *objects.HostedCluster {
			older := *demo
			older.Name, older.Spec.DNS.BaseDomain = "lab", "example.com"
			older.CreationTimestamp = metav1.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			demo.CreationTimestamp = metav1.Date(2025, 2, 1, 0, 0, 0, 0, time.UTC)
			demo.Spec.DNS.BaseDomain = "apps.lab.example.com"
			return &older
		}, nil, "the domain is part of an apps domain of HostedCluster clusters/lab, which is older", "demo.apps.lab.example.com\n"},
		{"with a younger cluster in its apps domain", func(demo *objects.HostedCluster) *objects.HostedCluster {
			younger := *demo
			younger.Name, younger.Spec.DNS.BaseDomain = "lab", "apps.demo.example.com"
			demo.CreationTimestamp = metav1.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			younger.CreationTimestamp = metav1.Date(2025, 2, 1, 0, 0, 0, 0, time.UTC)
			return &younger
		}, []string{"demo.example.com"}, "", "guard demo.example.com"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := exampleKnown(t)
			list := []*objects.HostedCluster{hostedCluster(t, known)}
			if other := tc.change(list[0]); other != nil {
				list = append(list, other)
			}
			setHostedClusters(known, list...)
			plan := makePlan(t, known)
			if got := plan.Domains(); !slices.Equal(got, tc.domains) {
				t.Errorf("the cluster DNS forwards %q, want %q", got, tc.domains)
			}
			if got := strings.Join(plan.Warnings, "\n"); (got == "") != (tc.warning == "") || !strings.Contains(got, tc.warning) {
				t.Errorf("warnings %q, want %q", got, tc.warning)
			}
			if !strings.Contains(string(plan.YAML), tc.guarded) {
				t.Errorf("the Corefile does not contain %q", tc.guarded)
			}
		})
	}
}

func TestCorefileHasTheManagementDomains(t *testing.T) {
	known := exampleKnown(t)
	domain := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"baseDomain": "mgmt.example.org", "domain": "apps.mgmt.example.org"}}}
	domain.SetGroupVersionKind(site.ClusterDNS)
	known.files = append(known.files, domain)
	plan := makePlan(t, known)
	for _, host := range []string{"ignition-server", "konnectivity-server", "oauth"} {
		if host += "-clusters-demo.apps.mgmt.example.org"; !strings.Contains(string(plan.YAML), " "+host) {
			t.Errorf("no zone contains %s, which OpenShift may generate later", host)
		}
	}
	if n := strings.Count(string(plan.YAML), "management apps.mgmt.example.org mgmt.example.org\n"); n != 2 {
		t.Errorf("%d server blocks have the domains, want 2", n)
	}
}

// TestZonesExcludeHostnameSiblings checks that a hostname of the hosted cluster is a separate zone. Names in
// these zones are answered with SERVFAIL before the objects are read, and names beside the hostname must not be.
func TestZonesExcludeHostnameSiblings(t *testing.T) {
	known := exampleKnown(t)
	demo := hostedCluster(t, known)
	demo.Spec.KubeAPIServerDNSName = "api-demo.example.com"
	setHostedClusters(known, demo)
	plan := makePlan(t, known)
	want := "guard api-demo.example.com demo.example.com\n"
	if n := strings.Count(string(plan.YAML), want); n != 2 {
		t.Errorf("%d server blocks have %q, want 2:\n%s", n, want, plan.YAML)
	}
}

func TestInvalidNamesAreRefused(t *testing.T) {
	for _, tc := range []struct{ kind, name, want string }{
		{"Infra", "dé–mo", "-, document 1: in Infra dé–mo: metadata.name: a lowercase RFC 1123 label must consist of"},
		{"ProxyServer", "Edge", "-, document 1: in ProxyServer Edge: metadata.name: a lowercase RFC 1123 label must consist of"},
		{"Infra", "demo.lab", "-, document 1: in Infra demo.lab: metadata.name: must not contain dots"},
		{"Infra", "y", "-, document 1: in Infra: metadata.name: expected a string, found a bool; quote the value"},
		{"Infra", "''", "-, document 1: the Infra has no name; set metadata.name"},
	} {
		file := "apiVersion: hostedcluster.densityops.com/v1alpha1\nkind: " + tc.kind + "\nmetadata: {name: " + tc.name + "}\n"
		if _, err := ReadFiles([]string{"-"}, strings.NewReader(file), "default", nil); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s %s: %v, want %s", tc.kind, tc.name, err, tc.want)
		}
	}
}

// TestFreeAddresses runs the transcript testdata/free-addresses.txt: "free NETWORK TAKEN...". The output is what setup chooses for a described Infra: an
// address, and then the largest range.
func TestFreeAddresses(t *testing.T) {
	golden.Transcript(t, "testdata/free-addresses.txt", func(line string) []string {
		words := strings.Fields(line)
		var taken []v1alpha1.AddressRange
		for _, text := range words[2:] {
			r, err := v1alpha1.ParseAddressRange(text)
			lab.Must(t, err)
			taken = append(taken, r)
		}
		d := &Description{CIDR: words[1], Gateway: "none", Network: "none", HostedCluster: "none", DNS: "none", Proxy: "none", Range: "none"}
		if err := d.choose(taken); err != nil {
			return []string{err.Error()}
		}
		d.Range = ""
		if err := d.choose(taken); err != nil {
			return []string{d.DHCP, err.Error()}
		}
		return []string{d.DHCP, d.Range}
	})
}

// TestReferenceWithoutNamespaceIsPinned checks which namespace setup writes into a reference to a HostedCluster.
func TestReferenceWithoutNamespaceIsPinned(t *testing.T) {
	for _, tc := range []struct {
		name   string
		exist  []string // namespaces with a HostedCluster demo
		served string   // the namespace in the Infra of the cluster; empty if that Infra does not exist
		want   string
	}{
		{"in the Infra's namespace", []string{"tenant"}, "", "tenant"},
		{"in the default namespace", []string{"clusters"}, "", "clusters"},
		{"in both", []string{"clusters", "tenant"}, "", "tenant"},
		{"in both, and a site that serves the other one", []string{"clusters", "tenant"}, "clusters", "clusters"},
		{"the one that the site served is gone", []string{"tenant"}, "clusters", "tenant"},
		{"in neither", []string{"other"}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known := exampleKnown(t)
			var exist []*objects.HostedCluster
			for _, namespace := range tc.exist {
				exist = append(exist, &objects.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "demo"}})
			}
			setHostedClusters(known, exist...)
			known.Infra.Namespace = "tenant"
			known.Infra.Spec.HostedClusterRef = &v1alpha1.HostedClusterReference{Name: "demo"}
			known.Written.SetNamespace("tenant")
			unstructured.RemoveNestedField(known.Written.Object, "spec", "hostedClusterRef", "namespace")
			if tc.served != "" {
				known.before = known.Infra.DeepCopy()
				known.before.Spec.HostedClusterRef.Namespace = tc.served
			}
			lab.Must(t, known.pinHostedCluster())
			written, _, _ := unstructured.NestedString(known.Written.Object, "spec", "hostedClusterRef", "namespace")
			if got := known.Infra.Spec.HostedClusterRef.Namespace; got != tc.want || written != tc.want {
				t.Errorf("the namespace is %q, written %q, want %q", got, written, tc.want)
			}
		})
	}
}

// TestClusterObjectsTakePrecedence covers objects in files that the cluster has as well: setup does not apply those in files.
func TestClusterObjectsTakePrecedence(t *testing.T) {
	for infraID, warnings := range map[string]int{"demo-x7k2p": 0, "other": 1} {
		known := exampleKnown(t)
		hc := hostedCluster(t, known)
		hc.Spec.InfraID = "demo-x7k2p"
		live := objectOf(site.HostedClusters, hc)
		lab.Must(t, unstructured.SetNestedField(live.Object, "Always", "spec", "defaultOfTheAPIServer"))
		known.live = site.NewFacts(time.Now()).With(live)
		hc.Spec.InfraID = infraID
		setHostedClusters(known, hc)
		known.dropPresent()
		if got := known.site().Cluster.InfraID; got != "demo-x7k2p" || len(known.ignored) != warnings {
			t.Errorf("infraID %s in the file: the plan has %s, and the warnings %q", infraID, got, known.ignored)
		}
	}
}

// TestTeardownSearchesEveryKind compares the kinds that teardown searches with the rendered ones, and their order.
func TestTeardownSearchesEveryKind(t *testing.T) {
	plan, _ := example(t)
	last := 0
	for _, o := range plan.infraObjects() {
		if o.GetKind() == "Infra" {
			continue
		}
		at := slices.IndexFunc(inventory.Kinds, func(k schema.GroupVersionKind) bool { return k == o.GroupVersionKind() })
		switch {
		case at < 0:
			t.Errorf("teardown does not search for %s", o.GroupVersionKind())
		case at < last:
			t.Errorf("%s is applied after a %s, and also deleted after it", inventory.Of(o), inventory.Kinds[last].Kind)
		default:
			last = at
		}
	}
	if last == 0 || !strings.HasSuffix(inventory.Kinds[last].Kind, "Set") {
		t.Errorf("the last object of the plan is a %s", inventory.Kinds[last].Kind)
	}
}
