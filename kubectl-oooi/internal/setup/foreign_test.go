package setup_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/api/v1alpha1"
)

// TestFieldsOfOtherManagersAreReported edits a pod template as kubectl edit does: it adds fields that setup does
// not set, which is not a conflict, and removes one.
func TestFieldsOfOtherManagersAreReported(t *testing.T) {
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
	stderr := s.Setup()
	for _, want := range append(named, "is kept; use --force-conflicts to remove it") {
		if !strings.Contains(stderr, want) {
			t.Errorf("want %s in %s", want, stderr)
		}
	}
	for _, no := range []string{"restartedAt", ".value", ".image"} {
		if strings.Contains(stderr, no) {
			t.Errorf("unwanted %s in %s", no, stderr)
		}
	}
	if now := set().Spec.Template.Spec; len(now.Containers) != len(before.Spec.Template.Spec.Containers)+1 || len(now.Tolerations) == 0 || len(now.Containers[0].Args) != len(before.Spec.Template.Spec.Containers[0].Args) {
		t.Errorf("setup without --force-conflicts changed the pod spec to %+v", now)
	}
	if out, stderr, code := s.Run("diff", "-f", "FILE", "--force-conflicts"); code != 1 || !strings.Contains(out, "HTTPS_PROXY") || !strings.Contains(out, "hostAliases") || !strings.Contains(stderr, "restarts pod "+s.Namespace+"/demo-dns-0") {
		t.Errorf("diff exited with %d, stderr %s, stdout %s", code, stderr, out)
	}
	if _, stderr, _ := s.Run("setup", "-f", "FILE", "--force-conflicts", "--dry-run=server"); !strings.Contains(stderr, "is removed") || len(set().Spec.Template.Spec.Tolerations) == 0 {
		t.Errorf("a dry run removed the fields, or did not report them: %s", stderr)
	}
	generation := set().Generation
	stderr = s.Setup("--force-conflicts")
	for _, want := range append(named, "is removed", "StatefulSet "+s.Namespace+"/demo-dns configured") {
		if !strings.Contains(stderr, want) {
			t.Errorf("want %s in %s", want, stderr)
		}
	}
	now := set()
	if !equality.Semantic.DeepEqual(now.Spec.Template.Spec, before.Spec.Template.Spec) {
		t.Errorf("the pod spec is %+v, want %+v", now.Spec.Template.Spec, before.Spec.Template.Spec)
	}
	if now.Generation != generation+1 {
		t.Errorf("setup --force-conflicts created %d revisions, want 1", now.Generation-generation)
	}
	if stderr := s.Setup(); strings.Contains(stderr, "demo-dns") {
		t.Errorf("a second setup printed %s", stderr)
	}
}

// TestAppliedFieldsOfOtherManagersAreKept sets a field by server-side apply, so that its manager would set it again.
func TestAppliedFieldsOfOtherManagersAreKept(t *testing.T) {
	s := newSite(t)
	s.Setup()
	o := fmt.Sprintf(`{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"namespace": %q, "name": "demo-dns"}, "spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}}`, s.Namespace)
	set := &appsv1.StatefulSet{}
	set.Namespace, set.Name = s.Namespace, "demo-dns"
	if err := s.Client.Patch(t.Context(), set, client.RawPatch(types.ApplyPatchType, []byte(o)), client.FieldOwner("argocd-controller")); err != nil {
		t.Fatal(err)
	}
	stderr := s.Setup("--force-conflicts")
	if want := `is kept; remove it from the configuration that argocd-controller applies`; !strings.Contains(stderr, ".spec.template.spec.priorityClassName set by") || !strings.Contains(stderr, want) {
		t.Errorf("want %s in %s", want, stderr)
	}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil || set.Spec.Template.Spec.PriorityClassName == "" {
		t.Errorf("the field was removed: %v", err)
	}
}

// TestFieldsThatOthersAddedToTheInfra lets other clients set fields of the Infra that the file of setup does not have: with
// server-side apply before setup and after it, and with an edit.
func TestFieldsThatOthersAddedToTheInfra(t *testing.T) {
	s := newSite(t)
	without := s.Infra
	with := strings.Replace(without, "serverIP: 192.0.2.4", "serverIP: 192.0.2.4, instances: [{ip: 192.0.2.5}, {ip: 192.0.2.6}], logLevel: info", 1) // info is the default
	infra := &unstructured.Unstructured{}
	infra.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("Infra"))
	infra.SetNamespace(s.Namespace)
	infra.SetName("demo")
	apply := func(manager string) {
		t.Helper()
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(with), &o.Object); err != nil {
			t.Fatal(err)
		}
		if err := s.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager)); err != nil {
			t.Fatal(err)
		}
	}
	const instances = `.spec.infraComponents.proxy.instances`
	const each = instances + `[ip="192.0.2.5"], ` + instances + `[ip="192.0.2.6"]`
	const again = "; also remove them from the configuration that argocd applies, which would set them again"
	commands := [][]string{{"setup", "-f", "FILE", "--wait=false"}, {"setup", "-f", "FILE", "--dry-run=server"}, {"diff", "-f", "FILE"}}
	removes := func(manager, fields string, more ...string) {
		t.Helper()
		named := append(more, fmt.Sprintf(`Infra %s/demo: %s set by %q at `, s.Namespace, fields, manager))
		before := s.Everything()
		for _, args := range commands {
			_, stderr, code := s.Run(args...)
			for _, want := range append(named, ", and missing in the file; add the fields to the file, or use --force-conflicts to remove them") {
				if code == 0 || !strings.Contains(stderr, want) || strings.Contains(stderr, "logLevel") {
					t.Errorf("%s exited with %d, stderr %s; want %s", args, code, stderr, want)
				}
			}
		}
		if out, stderr, code := s.Run("diff", "-f", "FILE", "--force-conflicts"); code != 1 || !strings.Contains(out, "-      - ip: 192.0.2.5") || !strings.Contains(stderr, " is removed") {
			t.Errorf("diff exited with %d, stderr %s, stdout %s", code, stderr, out)
		}
		if out, stderr, code := s.Run("setup", "-f", "FILE", "--dry-run=server", "--force-conflicts"); code != 0 || !strings.Contains(out, "Infra "+s.Namespace+"/demo configured") || !strings.Contains(stderr, " is removed") {
			t.Errorf("the dry run exited with %d, stderr %s, stdout %s", code, stderr, out)
		}
		s.Unchanged(before)
		stderr := s.Setup("--force-conflicts")
		for _, want := range append(named, " is removed", "Infra "+s.Namespace+"/demo configured") {
			if !strings.Contains(stderr, want) {
				t.Errorf("want %s in %s", want, stderr)
			}
		}
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(infra), infra); err != nil {
			t.Fatal(err)
		}
		if list, _, err := unstructured.NestedSlice(infra.Object, "spec", "infraComponents", "proxy", "instances"); err != nil || len(list) > 0 {
			t.Errorf("the Infra has instances %v, error %v", list, err)
		}
		if stderr := s.Setup(); strings.Contains(stderr, "Infra ") {
			t.Errorf("a second setup printed %s", stderr)
		}
	}
	apply("argocd")
	removes("argocd", each, again)
	commands = commands[:1]

	s.Infra = with
	s.Setup()
	apply("argocd")
	generation := infra.GetGeneration()
	s.Infra = strings.Replace(without, "dhcp: {", "dhcp: {leaseTime: 2h, ", 1)
	removes("argocd", each, again)
	if now := infra.GetGeneration(); now != generation+2 {
		t.Errorf("two setups changed the generation of the Infra from %d to %d", generation, now)
	}

	edit := `{"spec": {"infraComponents": {"proxy": {"instances": [{"ip": "192.0.2.5"}, {"ip": "192.0.2.6"}]}}}}`
	if err := s.Client.Patch(t.Context(), infra, client.RawPatch(types.MergePatchType, []byte(edit)), client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	removes("kubectl-edit", instances)
}

func TestFieldsThatOthersAddedToAProxyServer(t *testing.T) {
	s := newSite(t)
	s.Infra = strings.ReplaceAll(edge, "NS", s.Namespace)
	s.Setup()
	server := &unstructured.Unstructured{}
	server.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"))
	server.SetNamespace(s.Namespace)
	server.SetName("edge")
	edit := `{"spec": {"logLevel": "debug", "port": 443}}` // 443 is the default
	if err := s.Client.Patch(t.Context(), server, client.RawPatch(types.MergePatchType, []byte(edit)), client.FieldOwner("kubectl-edit")); err != nil {
		t.Fatal(err)
	}
	s.Refused("ProxyServer " + s.Namespace + `/edge: .spec.logLevel set by "kubectl-edit" at `)
	if stderr := s.Setup("--force-conflicts"); !strings.Contains(stderr, "ProxyServer "+s.Namespace+"/edge configured\n") {
		t.Errorf("setup printed %s", stderr)
	}
	if stderr := s.Setup(); strings.Contains(stderr, "/edge configured") {
		t.Errorf("a second setup printed %s", stderr)
	}
}

// TestLastBackendWithFieldsOfOthers removes the only backend of a file after another client has changed it. The API server
// turns such a list into null, which the CRD does not permit.
func TestLastBackendWithFieldsOfOthers(t *testing.T) {
	s := newSite(t)
	infra := s.Infra
	server := serverOfInfra(s)
	s.Infra = infra + "---" + server
	s.Setup()
	patch := func(text string) {
		t.Helper()
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind("ProxyServer"))
		o.SetNamespace(s.Namespace)
		o.SetName("demo")
		if err := s.Client.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(text)), client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
	}
	patch(`[{"op": "replace", "path": "/spec/backends/0/targetPort", "value": 5001}]`)
	server, _, _ = strings.Cut(server, "  backends:")
	s.Infra = infra + "---" + server
	const remedy = `[{"op":"remove","path":"/spec/backends"}]`
	for _, flags := range [][]string{nil, {"--force-conflicts"}} {
		s.Refused("kubectl -n "+s.Namespace+" patch proxyserver demo --type=json --patch='"+remedy+"'", flags...)
	}
	patch(remedy)
	s.Setup()
	if stderr := s.Setup(); stderr != "" {
		t.Errorf("a second setup printed %s", stderr)
	}
}

// TestDefaultsManagedByOthersAreNotReported removes a probe and adds it again. The client then manages fields that the API
// server set in it, whose removal would change nothing.
func TestDefaultsManagedByOthersAreNotReported(t *testing.T) {
	s := newSite(t)
	s.Setup()
	set := &appsv1.StatefulSet{}
	set.Namespace, set.Name = s.Namespace, "demo-dns"
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	probe := set.Spec.Template.Spec.Containers[0].LivenessProbe
	for _, p := range []*corev1.Probe{nil, {ProbeHandler: probe.ProbeHandler, PeriodSeconds: probe.PeriodSeconds, TimeoutSeconds: probe.TimeoutSeconds, FailureThreshold: probe.FailureThreshold}} {
		set.Spec.Template.Spec.Containers[0].LivenessProbe = p
		set.ResourceVersion = "" // its controller writes the status meanwhile
		if err := s.Client.Update(t.Context(), set, client.FieldOwner("kubectl-edit")); err != nil {
			t.Fatal(err)
		}
	}
	if stderr := s.Setup("--force-conflicts", "--dry-run=server"); strings.Contains(stderr, "successThreshold") || strings.Contains(stderr, "is removed") {
		t.Errorf("setup printed %s", stderr)
	}
}
