package drift_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/kubectl-oooi/internal/drift"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/release"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{Config: cmdtest.Management(), Prepare: cmdtest.Install}

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	lab.Main(m, &management)
}

// A deployed site.
type deployed struct {
	*cmdtest.Site
	*testing.T

	site *site.Site
}

// read reads the facts of a site again, as doctor does.
func (d *deployed) read(name string) {
	d.Helper()
	facts, _, err := (&site.Collector{Client: d.Client, Now: time.Now()}).Collect(d.Context(), d.Namespace, name)
	d.Must(err)
	if d.site = site.New(facts, d.Namespace+"/"+name, nil); d.site == nil {
		d.Fatal("no such site")
	}
}

func newSite(t *testing.T) *deployed {
	t.Helper()
	d := &deployed{Site: cmdtest.New(t, management.Get(t), cmd.Main), T: t}
	d.Setup()
	d.read("demo")
	return d
}

// expect expects the differences, each as "CHANGE OBJECT (COMPONENT): PATH FOUND -> RENDERED by MANAGER", twice, and that
// nothing was written.
func (d *deployed) expect(want ...string) {
	d.Helper()
	before := d.Everything()
	for range 2 {
		list, err := drift.Read(d.Context(), d.client(""), d.site)
		d.Must(err)
		var got []string
		for _, one := range list {
			text := fmt.Sprintf("%s %s (%s)", one.Change, one.Object, one.Component)
			for _, f := range one.Fields {
				manager, _, _ := strings.Cut(f.Manager, " at 20")
				text += fmt.Sprintf(": %s %s -> %s by %s", f.Path, f.Found, f.Rendered, manager)
			}
			got = append(got, strings.ReplaceAll(text, d.Namespace, "NS"))
		}
		if !reflect.DeepEqual(got, want) {
			d.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	d.Unchanged(before)
}

// client returns a client of a user, or of the test if user is empty, for which each request that may write, and each one
// beyond eight at a time, is an error.
func (d *deployed) client(user string) client.Client {
	d.Helper()
	config := rest.CopyConfig(d.ControlPlane.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &guard{RoundTripper: next, t: d.T} })
	c, err := client.New(config, client.Options{})
	d.Must(err)
	return c
}

type guard struct {
	http.RoundTripper

	t       *testing.T
	pending atomic.Int32
}

func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.URL.Query().Get("dryRun") != "All" {
		g.t.Errorf("%s %s writes", r.Method, r.URL)
	}
	if n := g.pending.Add(1); n > 8 {
		g.t.Errorf("%d requests at a time", n)
	}
	defer g.pending.Add(-1)
	return g.RoundTripper.RoundTrip(r)
}

// object reads an object by its kind, in the site's namespace.
func (d *deployed) object(kind, name string) *unstructured.Unstructured {
	d.Helper()
	for _, k := range inventory.Kinds {
		if k.Kind == kind {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(k)
			d.Must(d.Client.Get(d.Context(), client.ObjectKey{Namespace: d.Namespace, Name: name}, u))
			return u
		}
	}
	d.Fatal("no such kind " + kind)
	return nil
}

// patch changes an object as kubectl edit does.
func (d *deployed) patch(kind, name, patch string, as types.PatchType) {
	d.Helper()
	d.Must(d.Client.Patch(d.Context(), d.object(kind, name), client.RawPatch(as, []byte(patch)), client.FieldOwner("kubectl-edit")))
}

func (d *deployed) remove(kind, name string) {
	d.Helper()
	d.Must(d.Client.Delete(d.Context(), d.object(kind, name)))
}

// TestReadFindsAnEditedInfra edits the Infra, from which setup would render other objects.
func TestReadFindsAnEditedInfra(t *testing.T) {
	d := newSite(t)
	infra := inventory.Entry{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "Infra", Namespace: d.Namespace, Name: "demo"}.Object()
	edit := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"infraComponents": {"dhcp": {"leaseTime": "77m", "rangeEnd": "192.0.2.98"}}}}`))
	d.Must(d.Client.Patch(d.Context(), infra, edit, client.FieldOwner("kubectl-edit")))
	d.read("demo")
	list, err := drift.Read(d.Context(), d.client(""), d.site)
	if err != nil || len(list) < 2 {
		t.Fatal(list, err)
	}
	var fields []string
	for _, f := range list[0].Fields {
		manager, _, _ := strings.Cut(f.Manager, " at 20")
		fields = append(fields, fmt.Sprintf("%s %s -> %s by %s", f.Path, f.Found, f.Rendered, manager))
	}
	want := []string{".spec.infraComponents.dhcp.leaseTime 77m ->  by kubectl-edit", ".spec.infraComponents.dhcp.rangeEnd 192.0.2.98 -> 192.0.2.99 by kubectl-edit"}
	if list[0].Object.Kind != "Infra" || !slices.Equal(fields, want) {
		t.Errorf("%v %q, want %q", list[0].Object, fields, want)
	}
}

func TestReadFindsEdits(t *testing.T) {
	d := newSite(t)
	d.expect()

	// What others add is no difference.
	d.patch("StatefulSet", "demo-dns", `{"metadata": {"annotations": {"example.com/a": "b"}, "labels": {"example.com/a": "b"}}, "spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}},
		"spec": {"containers": [{"name": "sidecar", "image": "sidecar"}, {"name": "coredns", "env": [{"name": "A", "value": "b"}]}]}}}}`, types.StrategicMergePatchType)
	d.patch("Service", "demo-dns", `{"metadata": {"annotations": {"example.com/a": "b"}}}`, types.MergePatchType)
	d.patch("ConfigMap", d.ConfigOf("demo-dns"), `{"metadata": {"annotations": {"example.com/a": "b"}}}`, types.MergePatchType)
	d.expect()

	d.patch("StatefulSet", "demo-dns", `{"spec": {"template": {"spec": {"containers": [{"name": "coredns", "image": "example.com/other:1"}]}}}}`, types.StrategicMergePatchType)
	config := d.ConfigOf("demo-dns")
	d.remove("ConfigMap", config)
	d.remove("RoleBinding", "oooi-"+d.Namespace+"-demo-dhcp")
	d.patch("Service", "demo-dns", `{"spec": {"selector": {"app.kubernetes.io/part-of": "x"}}}`, types.MergePatchType)
	set := d.object("StatefulSet", "demo-dns")
	extra := &unstructured.Unstructured{Object: map[string]any{"spec": set.Object["spec"]}}
	extra.SetGroupVersionKind(set.GroupVersionKind())
	extra.SetNamespace(d.Namespace)
	extra.SetName("demo-dns-copy")
	extra.SetLabels(set.GetLabels())
	extra.SetAnnotations(set.GetAnnotations())
	d.Must(d.Client.Create(t.Context(), extra))
	selector := func(partOf string) string {
		return `{"app.kubernetes.io/component":"dns","app.kubernetes.io/part-of":"` + partOf + `","hostedcluster.densityops.com/infra":"demo"}`
	}
	d.expect(
		"missing RoleBinding NS/oooi-NS-demo-dhcp (dhcp)",
		"missing ConfigMap NS/"+config+" (dns)",
		`changed Service NS/demo-dns (dns): .spec.selector `+selector("x")+" -> "+selector("oooi")+" by kubectl-edit",
		`changed StatefulSet NS/demo-dns (dns): .spec.template.spec.containers[name="coredns"].image example.com/other:1 -> `+release.Image+" by kubectl-edit",
		"extra StatefulSet NS/demo-dns-copy (dns)",
	)
}

func TestReadOfStandaloneProxy(t *testing.T) {
	d := newSite(t)
	d.Infra = strings.ReplaceAll(`
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: edge, namespace: NS}
spec:
  networkConfig: {serverIP: 192.0.2.7/24, gateway: 192.0.2.1, networkAttachmentName: vlan100}
  backends:
  - {name: registry, hostname: registry.example.com, port: 5000, targetService: registry, targetNamespace: NS-demo, targetPort: 5000}
`, "NS", d.Namespace)
	d.Setup()
	d.read("edge")
	d.expect()
	d.patch("StatefulSet", "edge-proxy", `{"spec": {"replicas": 2}}`, types.MergePatchType)
	d.remove("ServiceAccount", "edge-proxy")
	d.expect("missing ServiceAccount NS/edge-proxy (proxy)", "changed StatefulSet NS/edge-proxy (proxy): .spec.replicas 2 -> 1 by kubectl-edit")
	d.read("demo")
	d.expect()
}

// TestReadOfGitOps makes a site look as if Argo CD had applied the output of setup: without records.
func TestReadOfGitOps(t *testing.T) {
	d := newSite(t)
	for _, kind := range inventory.Kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := d.Client.List(t.Context(), list, client.InNamespace(d.Namespace)); err != nil && !meta.IsNoMatchError(err) {
			t.Fatal(err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			managers := u.GetManagedFields()
			for i := range managers {
				managers[i].Manager = strings.Replace(managers[i].Manager, "kubectl-oooi", "argocd-controller", 1)
			}
			text, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": managers}})
			if err == nil {
				err = d.Client.Patch(t.Context(), u, client.RawPatch(types.JSONPatchType, text))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	d.DeleteRecords()
	d.expect()
	d.patch("Service", "demo-dns", `{"spec": {"type": "NodePort"}}`, types.MergePatchType)
	d.patch("StatefulSet", "demo-proxy", `{"spec": {"template": {"spec": {"containers": [{"name": "envoy", "command": ["secret"]}]}}}}`, types.StrategicMergePatchType)
	d.expect("changed Service NS/demo-dns (dns): .spec.type NodePort -> ClusterIP by kubectl-edit",
		`changed StatefulSet NS/demo-proxy (proxy): .spec.template.spec.containers[name="envoy"].command (hidden) -> (hidden) by kubectl-edit`)
}

// TestReadOfOlderSetup deploys a site with an older version.
func TestReadOfOlderSetup(t *testing.T) {
	version := release.Version
	t.Cleanup(func() { release.Version = version })
	release.Version = func() string { return "v1.0.0" }
	d := newSite(t)
	release.Version = func() string { return "v1.1.0" }
	const outdated = "outdated Infra NS/demo (): version v1.0.0 -> v1.1.0 by "
	d.expect(outdated)
	d.patch("ServiceAccount", "demo-dns", `{"metadata": {"labels": {"app.kubernetes.io/part-of": "x"}}}`, types.MergePatchType)
	d.remove("Service", "demo-dns")
	d.expect(outdated, "changed ServiceAccount NS/demo-dns (dns): .metadata.labels.app.kubernetes.io/part-of x -> oooi by kubectl-edit")
	release.Version = func() string { return "v0.9.0" }
	if _, err := drift.Read(t.Context(), d.Client, d.site); !errors.As(err, new(*drift.RefusedError)) || !strings.Contains(err.Error(), "kubectl-oooi v1.0.0 deployed") {
		t.Errorf("an older plugin: %v", err)
	}
}

func TestReadRefusals(t *testing.T) {
	d := newSite(t)
	record := d.Records()[0]
	data := record.Data
	record.Data = map[string][]byte{"record": []byte("x")}
	d.Must(d.Client.Update(t.Context(), &record))
	_, err := drift.Read(t.Context(), d.Client, d.site)
	if r := drift.ReportOf(nil, err); !strings.Contains(r.Refused, "decoding Secret") || r.Unread != "" {
		t.Errorf("an invalid record: %v", err)
	}
	record.Data = data
	d.Must(d.Client.Update(t.Context(), &record))
	d.expect()

	// A user who may only read.
	d.Grant("viewer", `[{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}]`)
	_, err = drift.Read(t.Context(), d.client("viewer"), d.site)
	if r := drift.ReportOf(nil, err); !apierrors.IsForbidden(err) || !strings.Contains(r.Unread, `"viewer" cannot patch resource`) || r.Refused != "" {
		t.Errorf("a user who may not patch: %v", err)
	}

	// While setup runs.
	pending := corev1.Secret{ObjectMeta: *record.ObjectMeta.DeepCopy(), Type: record.Type, Data: data}
	pending.ResourceVersion, pending.UID, pending.Name = "", "", strings.TrimSuffix(record.Name, "1")+"2"
	pending.Labels[v1alpha1.GroupName+"/status"] = "pending"
	pending.Annotations = map[string]string{v1alpha1.GroupName + "/holder": "setup by process 7 on laptop", v1alpha1.GroupName + "/renewed": time.Now().UTC().Format(time.RFC3339)}
	d.Must(d.Client.Create(t.Context(), &pending))
	if _, err = drift.Read(t.Context(), d.Client, d.site); err == nil || !strings.Contains(drift.ReportOf(nil, err).Unread, "setup by process 7 on laptop has not finished") {
		t.Errorf("while setup runs: %v", err)
	}
}

// TestReadCreatesNothing reads a site without a CRD, and without the namespace of control.
func TestReadCreatesNothing(t *testing.T) {
	d := newSite(t)
	for _, u := range []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "virtualingresses." + v1alpha1.GroupName}}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": render.SystemNamespace}}},
	} {
		d.Must(d.Client.Delete(t.Context(), u))
		if err := inventory.Of(u).WaitForDeletion(t.Context(), d.Client); err != nil {
			t.Fatal(err)
		}
	}
	list, err := drift.Read(t.Context(), d.client(""), d.site)
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"CustomResourceDefinition", "Namespace", "Deployment"} {
		if !slices.ContainsFunc(list, func(one drift.Difference) bool { return one.Object.Kind == kind && one.Change == drift.Missing }) {
			t.Errorf("no %s is missing: %v", kind, list)
		}
	}
	d.Setup()
	d.expect()
}

func TestEncode(t *testing.T) {
	reports := map[string]drift.Report{"clusters/demo": drift.ReportOf([]drift.Difference{{
		Object: model.Ref{Kind: "Service", Namespace: "clusters", Name: "demo-dns"}, Change: drift.Changed, Component: "dns",
		Fields: []drift.Field{{Path: ".spec.selector", Found: "a", Rendered: "b", Manager: "kubectl-edit at 2026-01-01T00:00:00Z"}},
	}}, nil), "clusters/other": drift.ReportOf(nil, errors.New("no answer"))}
	data, err := drift.Encode(reports)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := drift.Decode(data); err != nil || !reflect.DeepEqual(again, reports) {
		t.Errorf("decoded %v, %v", again, err)
	}
	if _, err := drift.Decode([]byte("{")); err == nil {
		t.Error("invalid JSON was decoded")
	}
}
