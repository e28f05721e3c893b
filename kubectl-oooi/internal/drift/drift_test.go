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

// differences returns the differences, each as "CHANGE OBJECT (COMPONENT): PATH FOUND -> RENDERED by MANAGER", and expects that
// nothing was written.
func (d *deployed) differences() (list []string) {
	d.Helper()
	before := d.Everything()
	found, err := drift.Read(d.Context(), d.client(""), d.site)
	if err != nil {
		return []string{"error: " + err.Error()}
	}
	for _, one := range found {
		text := fmt.Sprintf("%s %s (%s)", one.Change, one.Object, one.Component)
		for _, f := range one.Fields {
			manager, _, _ := strings.Cut(f.Manager, " at 20")
			text += fmt.Sprintf(": %s %s -> %s by %s", f.Path, f.Found, f.Rendered, manager)
		}
		list = append(list, text)
	}
	d.Unchanged(before)
	return list
}

// expectNone expects no differences.
func (d *deployed) expectNone() {
	d.Helper()
	if list := d.differences(); len(list) > 0 {
		d.Errorf("found\n%s", strings.Join(list, "\n"))
	}
}

// TestTranscripts finds the differences of sites after edits.
func TestTranscripts(t *testing.T) {
	version := release.Version
	t.Cleanup(func() { release.Version = version })
	cmdtest.Transcripts(t, "testdata", func(t *testing.T) (*cmdtest.Site, map[string]cmdtest.Command) {
		release.Version = version
		d := newSite(t)
		return d.Site, map[string]cmdtest.Command{
			"drift": func(string) []string { return d.differences() },
			// read reads the facts of a site: NAME.
			"read": func(name string) []string { d.read(name); return nil },
			// version makes the plugin one of a version.
			"version": func(v string) []string { release.Version = func() string { return v }; return nil },
			// edit changes an object as kubectl edit does: KIND NAME JSON.
			"edit": func(argument string) []string {
				words := strings.SplitN(argument, " ", 3)
				edit := client.RawPatch(types.StrategicMergePatchType, []byte(words[2]))
				d.Must(d.Client.Patch(t.Context(), d.object(words[0], words[1]), edit, client.FieldOwner("kubectl-edit")))
				return nil
			},
			// deleteconfig deletes the ConfigMap of a StatefulSet.
			"deleteconfig": func(set string) []string {
				d.Must(d.Client.Delete(t.Context(), d.object("ConfigMap", d.ConfigOf(set))))
				return nil
			},
			// copy copies a StatefulSet: NAME COPY.
			"copy": func(argument string) []string {
				name, other, _ := strings.Cut(argument, " ")
				set := d.object("StatefulSet", name)
				set.SetName(other)
				set.SetUID("")
				set.SetResourceVersion("")
				set.SetManagedFields(nil)
				d.Must(d.Client.Create(t.Context(), set))
				return nil
			},
			"gitops": func(string) []string { d.managedByArgoCD(); return nil },
		}
	})
}

// managedByArgoCD makes a site look as if Argo CD had applied the output of setup: without records.
func (d *deployed) managedByArgoCD() {
	d.Helper()
	for _, kind := range inventory.Kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		if err := d.Client.List(d.Context(), list, client.InNamespace(d.Namespace)); err != nil && !meta.IsNoMatchError(err) {
			d.Fatal(err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			managers := u.GetManagedFields()
			for i := range managers {
				managers[i].Manager = strings.Replace(managers[i].Manager, "kubectl-oooi", "argocd-controller", 1)
			}
			text, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": managers}})
			d.Must(err)
			d.Must(d.Client.Patch(d.Context(), u, client.RawPatch(types.JSONPatchType, text)))
		}
	}
	d.DeleteRecords()
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
	d.expectNone()

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
		lab.Must(t, inventory.Of(u).WaitForDeletion(t.Context(), d.Client))
	}
	list, err := drift.Read(t.Context(), d.client(""), d.site)
	lab.Must(t, err)
	for _, kind := range []string{"CustomResourceDefinition", "Namespace", "Deployment"} {
		if !slices.ContainsFunc(list, func(one drift.Difference) bool { return one.Object.Kind == kind && one.Change == drift.Missing }) {
			t.Errorf("no %s is missing: %v", kind, list)
		}
	}
	d.Setup()
	d.expectNone()
}

func TestEncode(t *testing.T) {
	reports := map[string]drift.Report{"clusters/demo": drift.ReportOf([]drift.Difference{{
		Object: model.Ref{Kind: "Service", Namespace: "clusters", Name: "demo-dns"}, Change: drift.Changed, Component: "dns",
		Fields: []drift.Field{{Path: ".spec.selector", Found: "a", Rendered: "b", Manager: "kubectl-edit at 2026-01-01T00:00:00Z"}},
	}}, nil), "clusters/other": drift.ReportOf(nil, errors.New("no answer"))}
	data, err := drift.Encode(reports)
	lab.Must(t, err)
	if again, err := drift.Decode(data); err != nil || !reflect.DeepEqual(again, reports) {
		t.Errorf("decoded %v, %v", again, err)
	}
	if _, err := drift.Decode([]byte("{")); err == nil {
		t.Error("invalid JSON was decoded")
	}
}
