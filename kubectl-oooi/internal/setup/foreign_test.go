package setup_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestWhatOthersAddToPodsIsNamed has somebody add to pods what setup does not set, which is no
// conflict, and take away what it does set.
func TestWhatOthersAddToPodsIsNamed(t *testing.T) {
	s := newSite(t)
	s.Setup()
	set := func() *appsv1.StatefulSet {
		t.Helper()
		o := &appsv1.StatefulSet{}
		if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "demo-dns"}, o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	change := func(manager string, kind types.PatchType, patch string) {
		t.Helper()
		if err := s.Client.Patch(t.Context(), set(), client.RawPatch(kind, []byte(patch)), client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
	}
	before := set()
	container := before.Spec.Template.Spec.Containers[0].Name
	change("kubectl-edit", types.StrategicMergePatchType, fmt.Sprintf(`{"spec": {"template": {
		"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}},
		"spec": {"hostAliases": [{"ip": "192.0.2.1", "hostnames": ["x"]}], "tolerations": [{"operator": "Exists"}],
			"containers": [{"name": %q, "args": null, "env": [{"name": "HTTPS_PROXY", "value": "x"}]}, {"name": "more", "image": "x"}]}}}}`, container))
	named := []string{
		fmt.Sprintf(`StatefulSet %s/demo-dns: .spec.template.spec.`, s.Namespace), `.containers[name="more"]`,
		fmt.Sprintf(`.containers[name=%q].env`, container), ".hostAliases", ".tolerations", `set by "kubectl-edit" at `,
	}
	said := s.Setup()
	for _, want := range append(named, "is kept; use --force-conflicts to remove it") {
		if !strings.Contains(said, want) {
			t.Errorf("no %s in %s", want, said)
		}
	}
	for _, no := range []string{"restartedAt", ".value", ".image"} {
		if strings.Contains(said, no) {
			t.Errorf("%s is in %s", no, said)
		}
	}
	if now := set().Spec.Template.Spec; len(now.Containers) != len(before.Spec.Template.Spec.Containers)+1 || len(now.Tolerations) == 0 || len(now.Containers[0].Args) != len(before.Spec.Template.Spec.Containers[0].Args) {
		t.Errorf("without --force-conflicts it has %+v", now)
	}
	if out, said, code := s.Run("diff", "-f", "FILE", "--force-conflicts"); code != 1 || !strings.Contains(out, "HTTPS_PROXY") || !strings.Contains(out, "hostAliases") || !strings.Contains(said, "Restarts: pod "+s.Namespace+"/demo-dns-0") {
		t.Errorf("diff ended with %d, said %s and printed %s", code, said, out)
	}
	if _, said, _ := s.Run("setup", "-f", "FILE", "--force-conflicts", "--dry-run=server"); !strings.Contains(said, "is removed") || len(set().Spec.Template.Spec.Tolerations) == 0 {
		t.Errorf("a dry run said %s", said)
	}
	generation := set().Generation
	said = s.Setup("--force-conflicts")
	for _, want := range append(named, "is removed", "StatefulSet "+s.Namespace+"/demo-dns configured") {
		if !strings.Contains(said, want) {
			t.Errorf("no %s in %s", want, said)
		}
	}
	now := set()
	if !equality.Semantic.DeepEqual(now.Spec.Template.Spec, before.Spec.Template.Spec) {
		t.Errorf("it has %+v, had %+v", now.Spec.Template.Spec, before.Spec.Template.Spec)
	}
	if now.Generation != generation+1 {
		t.Errorf("it took %d revisions", now.Generation-generation)
	}
	if said := s.Setup(); strings.Contains(said, "demo-dns") {
		t.Errorf("a setup more says %s", said)
	}
}

// TestWhatOthersApplyToPodsStays has a field that another manager keeps, and would set again.
func TestWhatOthersApplyToPodsStays(t *testing.T) {
	s := newSite(t)
	s.Setup()
	o := fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"namespace": %q, "name": "demo-dns"}, "spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}}`, s.Namespace)
	set := &appsv1.StatefulSet{}
	set.Namespace, set.Name = s.Namespace, "demo-dns"
	if err := s.Client.Patch(t.Context(), set, client.RawPatch(types.ApplyPatchType, []byte(o)), client.FieldOwner("argocd-controller")); err != nil {
		t.Fatal(err)
	}
	said := s.Setup("--force-conflicts")
	if want := `is kept; remove it from the configuration that argocd-controller applies`; !strings.Contains(said, ".spec.template.spec.priorityClassName set by") || !strings.Contains(said, want) {
		t.Errorf("no %s in %s", want, said)
	}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil || set.Spec.Template.Spec.PriorityClassName == "" {
		t.Errorf("it is gone, %v", err)
	}
}
