package ingress_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/test/lab"
)

// helm runs helm and returns its output. The argument CHART stands for the chart's folder.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	binary, err := lab.BuildHelm(t.Context(), t.Logf)
	lab.Must(t, err)
	root, err := lab.Root()
	lab.Must(t, err)
	for i, arg := range args {
		if arg == "CHART" {
			args[i] = filepath.Join(root, "manifests", "charts", "virtual-ingress")
		}
	}
	out, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
	return string(out), err
}

// rendered returns the objects of helm template by "kind namespace/name".
func rendered(t *testing.T, args ...string) map[string]map[string]any {
	t.Helper()
	out, err := helm(t, append([]string{"template", "release", "CHART", "--kube-version", "1.36.0"}, args...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return byKey(t, parsed(t, []byte(out)))
}

func keyOf(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
}

// parsed returns the objects in a YAML text.
func parsed(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := lab.ParseYAML(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return objects
}

func byKey(t *testing.T, objects []*unstructured.Unstructured) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, o := range objects {
		key := keyOf(o)
		if all[key] != nil {
			t.Errorf("duplicate object %s", key)
		}
		all[key] = o.Object
	}
	return all
}

// kustomized returns the objects of a kustomization in manifests/ingress by "kind namespace/name".
func kustomized(t *testing.T, folder string) map[string]map[string]any {
	t.Helper()
	root, err := lab.Root()
	lab.Must(t, err)
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "manifests", "ingress", folder))
	lab.Must(t, err)
	text, err := built.AsYaml()
	lab.Must(t, err)
	return byKey(t, parsed(t, text))
}

// containerOf returns the only container of a Deployment.
func containerOf(deployment map[string]any) map[string]any {
	containers, _, _ := unstructured.NestedFieldNoCopy(deployment, "spec", "template", "spec", "containers")
	list, _ := containers.([]any)
	container, _ := list[0].(map[string]any)
	return container
}

const deploymentKey = "Deployment oooi-system/oooi-ingress"

func TestChartEqualsKustomization(t *testing.T) {
	chart := rendered(t, "--namespace", "oooi-system", "--include-crds")
	container := containerOf(chart[deploymentKey])
	if args, _ := container["args"].([]any); len(args) > 0 {
		t.Errorf("unexpected default flags: %v", args)
	}
	delete(container, "args")
	want := kustomized(t, ".")
	delete(want, "Namespace /oooi-system") // Helm creates the namespace
	if diff := cmp.Diff(want, chart); diff != "" {
		t.Errorf("chart and kustomization differ (-kustomize +chart):\n%s", diff)
	}
}

func TestValuesOfTheChart(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", "CHART"); err != nil {
		t.Errorf("helm lint: %s", out)
	}
	with := func(values ...string) map[string]map[string]any {
		t.Helper()
		args := []string{"--namespace", "oooi-system"}
		for _, value := range values {
			args = append(args, "--set", value)
		}
		return rendered(t, args...)
	}
	expectNone := func(all map[string]map[string]any, part string) {
		t.Helper()
		for key := range all {
			if strings.Contains(key, part) {
				t.Errorf("unexpected %s", key)
			}
		}
	}
	all := with("namespaces={web,shop}", "suffix=", "onMultiple=Newest", "onNoMatch=Delete", "crossNamespace=true", "drop={a.example.com/,b=c}",
		"log.level=debug", "log.format=json", "podMonitor.enabled=true")
	args := []any{
		"--watch-namespace=web,shop", "--suffix=", "--on-multiple=Newest", "--on-no-match=Delete", "--cross-namespace",
		"--drop=a.example.com/", "--drop=b=c", "--log-format=json", "--log-level=debug",
	}
	if diff := cmp.Diff(args, containerOf(all[deploymentKey])["args"], cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	if all["PodMonitor oooi-system/oooi-ingress"] == nil {
		t.Error("no PodMonitor")
	}
	for _, o := range parsed(t, lab.ReadFile(t, "manifests", "ingress", "cross-namespace", "rbac.yaml")) {
		if diff := cmp.Diff(o.Object, all[keyOf(o)]); diff != "" {
			t.Errorf("chart and component differ (-component +chart):\n%s", diff)
		}
	}
	all = with("aliases=false")
	expectNone(all, "aliases")
	if diff := cmp.Diff([]any{"--aliases=false"}, containerOf(all[deploymentKey])["args"]); diff != "" {
		t.Error(diff)
	}
	expectNone(with("rbac.create=false"), "Role")

	clusterWide := with()
	all = rendered(t, "--namespace", "web", "--set", "rbac.clusterWide=false", "--set", "namespaces={web,shop}")
	expectNone(all, "ClusterRole")
	for _, namespace := range []string{"web", "shop"} {
		for name, clusterRole := range map[string]string{"oooi-ingress-objects": "oooi-ingress", "oooi-ingress-aliases": "oooi-ingress-aliases"} {
			role, binding := all["Role "+namespace+"/"+name], all["RoleBinding "+namespace+"/"+name]
			want := []any{
				clusterWide["ClusterRole /"+clusterRole]["rules"], map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": name},
				[]any{map[string]any{"kind": "ServiceAccount", "name": "oooi-ingress", "namespace": "web"}},
			}
			if diff := cmp.Diff(want, []any{role["rules"], binding["roleRef"], binding["subjects"]}); diff != "" {
				t.Errorf("rules, roleRef and subjects of %s in %s (-want +got):\n%s", name, namespace, diff)
			}
		}
	}
	for invalid, want := range map[string]string{
		"image=": schemaError, "replicaCount=2": schemaError, "rbac.clusterWide=false": schemaError, "aliases=maybe": schemaError, "onMultiple=Any": schemaError,
		"suffix=-": schemaError, "namespaces={A}": schemaError, "drop={a\\,b}": schemaError, "aliases=false,crossNamespace=true": "",
	} {
		if out, err := helm(t, "template", "release", "CHART", "--kube-version", "1.36.0", "--set", invalid); err == nil || !strings.Contains(out, want) {
			t.Errorf("helm accepts %s, or does not say %q: %v: %s", invalid, want, err, out)
		}
	}
	if out, err := helm(t, "template", "release", "CHART", "--kube-version", "1.29.0"); err == nil {
		t.Errorf("helm accepts Kubernetes 1.29: %s", out)
	}
}

const schemaError = "values don't meet the specifications of the schema"

// TestHelmInstallsAndRemoves runs the daemon with the permissions of a namespaced release, and checks that its
// Ingresses outlive the release.
func TestHelmInstallsAndRemoves(t *testing.T) {
	s, other := newSite(t), newSite(t)
	cp := s.ControlPlane
	in := []string{"--kubeconfig", cp.Kubeconfig(), "--namespace", s.Namespace}
	run := func(args ...string) {
		t.Helper()
		if out, err := helm(t, append(args, in...)...); err != nil {
			t.Fatalf("helm %q: %v: %s", args, err, out)
		}
	}
	run("install", "web", "CHART", "--set", "rbac.clusterWide=false", "--set", "namespaces={"+s.Namespace+"}")
	startDeployed := func(name string) *lab.Replica {
		t.Helper()
		r := newReplica(t, cp, name, account(s.Namespace), append([]string{"--namespace", s.Namespace}, s.deployedFlags()...)...)
		r.Lead(t)
		return r
	}
	r := startDeployed("ingress")
	s.Service("first", "app: web", "{port: 80}")
	s.Mirrored("guest", "app: guest", "198.51.100.7")
	s.Apply(virtualIngress("web"))
	s.Apply(virtualIngressOf("guest", "app: guest", "number: 80", "backendMode: Alias"))
	s.AwaitBackend("web-generated", "first")
	s.AwaitEndpoints(s.alias("guest", "guest"), "198.51.100.7:30080 http")
	other.Service("first", "app: web", "{port: 80}")
	other.Apply(virtualIngress("web"))

	run("upgrade", "web", "CHART", "--set", "suffix=-ingress", "--reuse-values")
	r.Terminate(t)
	r = startDeployed("upgraded")
	s.AwaitBackend("web-ingress", "first")
	s.AwaitBackend("web-generated", "")
	if other.Ingress("web-generated") != nil || other.Ingress("web-ingress") != nil {
		t.Error("an Ingress was created in a namespace that is not listed")
	}
	r.Terminate(t)

	run("uninstall", "web")
	for _, list := range []client.ObjectList{&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &corev1.ServiceAccountList{}} {
		lab.Must(t, s.Client.List(t.Context(), list, client.InNamespace(s.Namespace), client.MatchingLabels{"app.kubernetes.io/managed-by": "Helm"}))
		if text := fmt.Sprint(list); strings.Contains(text, "oooi-ingress") {
			t.Errorf("not deleted: %s", text)
		}
	}
	// Generated Ingresses and VirtualIngresses stay.
	if s.Backend("web-ingress") != "first" || s.Virtual("web").Status.Conditions[0].Reason != v1alpha1.ReasonResolved {
		t.Error("the Ingress was deleted with the release")
	}
}

// deployedFlags returns the flags of the daemon in the release's Deployment.
func (s *site) deployedFlags() (flags []string) {
	s.Helper()
	d := &appsv1.Deployment{}
	if !s.Get(d, "oooi-ingress") {
		s.Fatal("no Deployment")
	}
	c := d.Spec.Template.Spec.Containers[0]
	if want := []string{"/xdsd", "ingress", "--http", "$(POD_IP):9905", "--identity", "$(POD_NAME)_$(POD_UID)"}; !slices.Equal(c.Command, want) {
		s.Fatalf("command %q, want %q", c.Command, want)
	}
	return c.Args
}
