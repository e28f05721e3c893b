package ingress_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if err != nil {
		t.Fatal(err)
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "manifests", "ingress", folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
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
	in := []string{"--namespace", "oooi-system"}
	for _, tc := range []struct {
		set  []string
		args []any
	}{
		{[]string{"namespaces={web,shop}"}, []any{"--watch-namespace=web,shop"}},
		{[]string{"suffix="}, []any{"--suffix="}},
		{[]string{"onMultiple=Newest", "onNoMatch=Delete"}, []any{"--on-multiple=Newest", "--on-no-match=Delete"}},
		{[]string{"crossNamespace=true"}, []any{"--cross-namespace"}},
		{[]string{"aliases=false"}, []any{"--aliases=false"}},
		{[]string{"drop={a.example.com/,b=c}", "log.level=debug", "log.format=json"}, []any{"--drop=a.example.com/", "--drop=b=c", "--log-format=json", "--log-level=debug"}},
	} {
		t.Run(strings.Join(tc.set, " "), func(t *testing.T) {
			args := in
			for _, value := range tc.set {
				args = append(args, "--set", value)
			}
			if diff := cmp.Diff(tc.args, containerOf(rendered(t, args...)[deploymentKey])["args"]); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("cross-namespace", func(t *testing.T) {
		all := rendered(t, append(in, "--set", "crossNamespace=true")...)
		for _, o := range parsed(t, lab.ReadFile(t, "manifests", "ingress", "cross-namespace", "rbac.yaml")) {
			if diff := cmp.Diff(o.Object, all[keyOf(o)]); diff != "" {
				t.Errorf("chart and component differ (-component +chart):\n%s", diff)
			}
		}
	})
	t.Run("namespaced", func(t *testing.T) {
		clusterWide := rendered(t, in...)
		all := rendered(t, "--namespace", "web", "--set", "rbac.clusterWide=false", "--set", "namespaces={web,shop}")
		for key := range all {
			if strings.HasPrefix(key, "ClusterRole") {
				t.Errorf("unexpected %s", key)
			}
		}
		for _, namespace := range []string{"web", "shop"} {
			for name, clusterRole := range map[string]string{"oooi-ingress-objects": "oooi-ingress", "oooi-ingress-aliases": "oooi-ingress-aliases"} {
				role, binding := all["Role "+namespace+"/"+name], all["RoleBinding "+namespace+"/"+name]
				if role == nil || binding == nil {
					t.Errorf("no %s in %s", name, namespace)
					continue
				}
				if diff := cmp.Diff(clusterWide["ClusterRole /"+clusterRole]["rules"], role["rules"]); diff != "" {
					t.Errorf("rules of ClusterRole %s and Role %s differ (-ClusterRole +Role):\n%s", clusterRole, name, diff)
				}
				wantRef := map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": name}
				wantSubjects := []any{map[string]any{"kind": "ServiceAccount", "name": "oooi-ingress", "namespace": "web"}}
				if diff := cmp.Diff([]any{wantRef, wantSubjects}, []any{binding["roleRef"], binding["subjects"]}); diff != "" {
					t.Errorf("RoleBinding %s in %s:\n%s", name, namespace, diff)
				}
			}
		}
	})
	t.Run("without aliases", func(t *testing.T) {
		for key := range rendered(t, append(in, "--set", "aliases=false")...) {
			if strings.Contains(key, "aliases") {
				t.Errorf("unexpected %s", key)
			}
		}
	})
	t.Run("without RBAC objects", func(t *testing.T) {
		for key := range rendered(t, append(in, "--set", "rbac.create=false")...) {
			if strings.Contains(key, "Role") {
				t.Errorf("unexpected %s", key)
			}
		}
	})
	t.Run("metrics", func(t *testing.T) {
		if rendered(t, append(in, "--set", "podMonitor.enabled=true")...)["PodMonitor oooi-system/oooi-ingress"] == nil {
			t.Error("no PodMonitor")
		}
	})
	for _, invalid := range []string{
		"image=", "replicas=-1", "replicaCount=2", "rbac.clusterWide=false", "aliases=maybe", "onMultiple=Any", "onNoMatch=Guess",
		"suffix=-", "namespaces={A}", "log.level=loud", "drop={a\\,b}", "podMonitor.enable=true",
	} {
		t.Run("invalid: "+invalid, func(t *testing.T) {
			if out, err := helm(t, "template", "release", "CHART", "--kube-version", "1.36.0", "--set", invalid); err == nil || !strings.Contains(out, "values don't meet the specifications of the schema") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	if out, err := helm(t, "template", "release", "CHART", "--kube-version", "1.36.0", "--set", "aliases=false,crossNamespace=true"); err == nil {
		t.Errorf("helm accepts crossNamespace without aliases: %s", out)
	}
	if out, err := helm(t, "template", "release", "CHART", "--kube-version", "1.29.0"); err == nil {
		t.Errorf("helm accepts Kubernetes 1.29: %s", out)
	}
}

// TestHelmInstallsAndRemoves runs the daemon with the rights of a namespaced release, and checks that its
// Ingresses outlive the release.
func TestHelmInstallsAndRemoves(t *testing.T) {
	cp := lab.New(t, lab.Config{Name: "helm", ControllerManager: true})
	s := newSite(t, cp)
	other := newSite(t, cp)
	in := []string{"--kubeconfig", cp.Kubeconfig(), "--namespace", s.namespace}
	run := func(args ...string) {
		t.Helper()
		if out, err := helm(t, append(args, in...)...); err != nil {
			t.Fatalf("helm %q: %v: %s", args, err, out)
		}
	}
	run("install", "web", "CHART", "--set", "rbac.clusterWide=false", "--set", "namespaces={"+s.namespace+"}")
	deployed := s.getDeployment("oooi-ingress")
	r := newReplica(t, cp, "ingress", account(s.namespace), append([]string{"--namespace", s.namespace}, flags(deployed)...)...)
	r.Start(t)
	r.awaitLead(t)
	s.service("first", "app: web", "{port: 80}")
	s.mirrored("guest", "app: guest", "198.51.100.7")
	s.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))
	s.apply(virtualIngressYAML("guest", "app: guest", "number: 80", "  backendMode: Alias"))
	s.awaitBackend("web-generated", "first")
	s.awaitEndpoints(s.alias("guest", "guest"), "198.51.100.7:30080 http")
	other.service("first", "app: web", "{port: 80}")
	other.apply(virtualIngressYAML("web", "app: web", "number: 80", ""))

	run("upgrade", "web", "CHART", "--set", "suffix=-ingress", "--reuse-values")
	r.Terminate(t)
	deployed = s.getDeployment("oooi-ingress")
	if !slices.Contains(flags(deployed), "--suffix=-ingress") {
		t.Errorf("flags %q after the upgrade", flags(deployed))
	}
	r = newReplica(t, cp, "upgraded", account(s.namespace), append([]string{"--namespace", s.namespace}, flags(deployed)...)...)
	r.Start(t)
	r.awaitLead(t)
	s.awaitBackend("web-ingress", "first")
	s.awaitBackend("web-generated", "")
	if other.ingress("web-generated") != nil || other.ingress("web-ingress") != nil {
		t.Error("an Ingress was created in a namespace that is not listed")
	}
	r.Terminate(t)

	run("uninstall", "web")
	for _, list := range []client.ObjectList{&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &corev1.ServiceAccountList{}} {
		if err := s.client.List(t.Context(), list, client.InNamespace(s.namespace), client.MatchingLabels{"app.kubernetes.io/managed-by": "Helm"}); err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(list); strings.Contains(text, "oooi-ingress") {
			t.Errorf("not deleted: %s", text)
		}
	}
	// Generated Ingresses and VirtualIngresses stay.
	if s.backend("web-ingress") != "first" || s.virtual("web").Status.Conditions[0].Reason != v1alpha1.ReasonResolved {
		t.Error("the Ingress was deleted with the release")
	}
}

// getDeployment returns the only container of a Deployment.
func (s *site) getDeployment(name string) corev1.Container {
	s.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("apps/v1")
	u.SetKind("Deployment")
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, u); err != nil {
		s.t.Fatal(err)
	}
	c := corev1.Container{}
	raw := containerOf(u.Object)
	for _, part := range []struct {
		name string
		into *[]string
	}{{"command", &c.Command}, {"args", &c.Args}} {
		list, _ := raw[part.name].([]any)
		for _, one := range list {
			*part.into = append(*part.into, fmt.Sprint(one))
		}
	}
	return c
}

// flags returns the flags of the daemon in a Deployment.
func flags(c corev1.Container) []string {
	if !slices.Equal(c.Command, []string{"/xdsd", "ingress", "--http", "$(POD_IP):9905", "--identity", "$(POD_NAME)_$(POD_UID)"}) {
		panic(fmt.Sprintf("unexpected command %q", c.Command))
	}
	return c.Args
}
