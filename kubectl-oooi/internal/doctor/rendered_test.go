package doctor

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/setup"
	"github.com/densityops/oooi/test/lab"
)

// clusterConfigs are the objects with the domains of an OpenShift management cluster.
const clusterConfigs = `
apiVersion: config.openshift.io/v1
kind: DNS
metadata: {name: cluster}
spec: {baseDomain: mgmt.example.org, publicZone: {id: SECRET}}
---
apiVersion: config.openshift.io/v1
kind: Ingress
metadata: {name: cluster}
spec: {domain: apps.mgmt.example.org, componentRoutes: [{name: SECRET}]}
`

const controlPlaneNamespace = `
apiVersion: v1
kind: Namespace
metadata: {name: clusters-demo}
`

const rememberedFlags = `
apiVersion: v1
kind: ConfigMap
metadata: {name: INVENTORY, namespace: clusters, labels: {app.kubernetes.io/managed-by: oooi}}
data: {setup.yaml: 'openshift: "VALUE"'}
`

// TestRendersAsSetup deploys the example with setup's own plan, and expects that doctor finds no difference.
func TestRendersAsSetup(t *testing.T) {
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(root, "manifests", "examples", "demo")
	files := []string{filepath.Join(folder, "infra.yaml"), filepath.Join(folder, "cluster.yaml")}
	const customProxy = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: clusters}
spec:
  infraRef: {name: demo}
  networkConfig: {serverIP: 192.168.100.4}
  backends:
  - {name: registry, hostname: registry.demo.example.com, port: 5000, targetService: registry, targetNamespace: clusters-demo, targetPort: 5000}
`
	for _, tc := range []struct {
		name    string
		known   func(*setup.Known)
		plain   bool   // the cluster does not serve SecurityContextConstraints
		files   string // beside the example's
		objects string // of the cluster
		images  render.Images
	}{
		{"plain Kubernetes", func(*setup.Known) {}, true, "", "", render.Images{}},
		{"OpenShift", func(k *setup.Known) {
			k.OpenShift, k.Management = true, []string{"apps.mgmt.example.org", "mgmt.example.org"}
		}, false, "", clusterConfigs, render.Images{}},
		{"--openshift=true", func(k *setup.Known) { k.OpenShift = true }, true, "", strings.ReplaceAll(rememberedFlags, "VALUE", "true"), render.Images{}},
		{"--openshift=false", func(*setup.Known) {}, false, "", strings.ReplaceAll(rememberedFlags, "VALUE", "false"), render.Images{}},
		{"ProxyServer with backends", func(*setup.Known) {}, true, customProxy, "", render.Images{}},
		{"remembered images", func(*setup.Known) {}, true, "", strings.ReplaceAll(rememberedFlags, `openshift: "VALUE"`, `{"image": "example.com/oooi", "envoyImage": "example.com/envoy"}`), render.Images{Oooi: "example.com/oooi", Envoy: "example.com/envoy"}},
		{"image of the earlier operator", func(k *setup.Known) {
			const image = "quay.io/cldmnky/oooi:v1"
			k.Infra.Spec.InfraComponents.DNS.Image = image
			if err := unstructured.SetNestedField(k.Written.Object, image, "spec", "infraComponents", "dns", "image"); err != nil {
				t.Fatal(err)
			}
		}, true, "", "", render.Images{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			known, err := setup.ReadFiles(append(slices.Clone(files), "-"), strings.NewReader(tc.files), "clusters", nil)
			if err != nil {
				t.Fatal(err)
			}
			known.ControlPlane = true
			tc.known(known)
			plan, err := setup.Make(known, render.Images{Oooi: "example.com/oooi", Envoy: "example.com/envoy"})
			if err != nil {
				t.Fatal(err)
			}
			facts := NewFacts(time.Now())
			facts.unserved[constraints] = tc.plain
			for _, u := range plan.Objects {
				facts.add(u)
			}
			inputs, err := documents.Read(append(slices.Clone(files), "-"), strings.NewReader(controlPlaneNamespace+"---"+strings.ReplaceAll(tc.objects, "INVENTORY", inventory.Name(types.NamespacedName{Namespace: "clusters", Name: "demo"}).Name)))
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range inputs {
				facts.add(o.Unstructured)
			}
			facts.compare(facts.sites([]string{"clusters/demo"}))
			var bundle strings.Builder
			if err := facts.files(func(_ string, data []byte) error { bundle.Write(data); return nil }); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(bundle.String(), "SECRET") {
				t.Error("the bundle contains fields that no check reads")
			}
			s := NewSite(facts, known.Infra.Namespace+"/"+known.Infra.Name)
			got, err := s.input()
			if err != nil {
				t.Fatal(err)
			}
			want := known.Input(tc.images)
			got.Snapshot, want.Snapshot, got.Infra, want.Infra, got.Written, want.Written = nil, nil, nil, nil, nil, nil
			if got.ProxyServer != nil && want.ProxyServer != nil {
				got.ProxyServer, want.ProxyServer = nil, nil // ProxySpec has its fields
			}
			got.Sets, want.Sets = render.Sets{}, render.Sets{} // setup read them before it created the first ones
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(render.Sets{})); diff != "" {
				t.Errorf("doctor renders from another input than setup (-setup +doctor):\n%s", diff)
			}
			check := registered[slices.IndexFunc(registered, func(c Check) bool { return c.Code == "OOOI-INF-002" })]
			s.reads = check.Reads
			for _, f := range check.Run(s) {
				t.Errorf("%s %s: %s %q", check.Code, f.Object, f.Message, f.Evidence)
			}
			if len(s.checkErrors) > 0 {
				t.Error(s.checkErrors)
			}
			if n := len(facts.list(statefulSets, "")); n != 3 {
				t.Errorf("the plan has %d StatefulSets, want 3", n)
			}
		})
	}
}
