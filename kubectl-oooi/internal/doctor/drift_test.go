package doctor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmd"
	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
	"github.com/densityops/oooi/kubectl-oooi/internal/documents"
	"github.com/densityops/oooi/test/faults"
)

const driftCheck = "OOOI-INF-002"

var setKind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// driftSite is a site whose objects are compared. Its components do not run.
func driftSite(t *testing.T) *testSite {
	t.Helper()
	commands := cmdtest.New(t, management.Get(t), cmd.Main)
	s := &testSite{commands: commands, Site: &faults.Site{T: t, ControlPlane: commands.ControlPlane, Client: commands.Client, Namespace: commands.Namespace}}
	s.Doctor = func(t *testing.T, args ...string) faults.Output {
		t.Helper()
		stdout, stderr, code := commands.Run(append([]string{"doctor", "demo", "-n", commands.Namespace}, args...)...)
		return faults.Output{Stdout: stdout, Stderr: stderr, Code: code}
	}
	return s
}

// runControl writes that control runs and has reconciled the Infra, without which objects are not compared.
func (s *testSite) runControl(t *testing.T) {
	t.Helper()
	s.T = t
	list := &corev1.PodList{}
	s.Await("control to be available", func() bool {
		if err := s.Client.List(t.Context(), list, client.InNamespace("oooi-system")); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			s.PatchStatus(corev1.SchemeGroupVersion.WithKind("Pod"), "oooi-system", list.Items[i].Name, `{"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}`)
		}
		control := s.Get(appsv1.SchemeGroupVersion.WithKind("Deployment"), "oooi-system", "oooi-control")
		available, _, _ := unstructured.NestedInt64(control.Object, "status", "availableReplicas")
		return available > 0
	})
	s.PatchStatus(infraKind, "$ns", "demo", fmt.Sprintf(`{"status": {"observedGeneration": %d}}`, s.Get(infraKind, "$ns", "demo").GetGeneration()))
}

// drifts returns the findings of the check, each with its evidence and remedy, and expects the same from a bundle.
func (s *testSite) drifts(t *testing.T) []string {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	var texts [][]string
	for _, args := range [][]string{{"--save", bundle}, {"--from", bundle}} {
		var list []string
		for _, r := range s.Diagnose(append(args, "--only", driftCheck)...).Results {
			if r.Status != "pass" && r.Status != "warn" && r.Status != "fail" {
				t.Errorf("%v: %s: %s", args, r.Status, r.Reason)
			}
			for _, f := range r.Findings {
				list = append(list, strings.Join(append([]string{f.Severity, f.Object.Kind + "/" + f.Object.Name, f.Message, f.Remedy}, f.Evidence...), "\n"))
			}
		}
		texts = append(texts, list)
	}
	if !slices.Equal(texts[0], texts[1]) {
		t.Errorf("found %q, from the bundle %q", texts[0], texts[1])
	}
	return texts[0]
}

// expectDrift expects one finding, which contains the texts.
func (s *testSite) expectDrift(t *testing.T, texts ...string) {
	t.Helper()
	found := s.drifts(t)
	if len(found) != 1 {
		t.Fatalf("found %q, want one finding with %q", found, texts)
	}
	for _, text := range texts {
		if !strings.Contains(found[0], text) {
			t.Errorf("found %q, want %q", found[0], text)
		}
	}
}

// TestDriftOfReplicas edits objects of an Infra with several replicas.
func TestDriftOfReplicas(t *testing.T) {
	s := driftSite(t)
	s.commands.Infra = strings.NewReplacer("dns: {serverIP: 192.0.2.3}", "dns: {instances: [{ip: 192.0.2.3}, {ip: 192.0.2.5}]}",
		"proxy: {serverIP: 192.0.2.4}", "proxy: {serverIP: 192.0.2.4, instances: [{ip: 192.0.2.6}, {ip: 192.0.2.7}]}").Replace(s.commands.Infra)
	s.commands.Setup()
	s.runControl(t)
	if found := s.drifts(t); len(found) > 0 {
		t.Fatalf("after setup: %q", found)
	}
	budgetKind := kindOf(t, "PodDisruptionBudget")
	s.Patch(budgetKind, "$ns", "demo-dns", `{"spec": {"maxUnavailable": "100%"}}`)
	s.expectDrift(t, "warn\nPodDisruptionBudget/demo-dns\n", `.spec.maxUnavailable: found "100%", setup would render 1; set by "doctor.test" at `)
	s.Patch(budgetKind, "$ns", "demo-dns", `{"spec": {"maxUnavailable": 1}}`)
	set := s.Get(setKind, "$ns", "demo-dns-192-0-2-5")
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
	if err := s.Client.SubResource("scale").Update(t.Context(), set, client.WithSubResourceBody(scale), client.FieldOwner("kubectl-scale")); err != nil {
		t.Fatal(err)
	}
	s.expectDrift(t, "fail\nStatefulSet/demo-dns-192-0-2-5\nits 2 replicas have the same VLAN address\n", `.spec.replicas: found 2, setup would render 1; set by "kubectl-scale" at `)
}

// TestNoDriftWithGitOps applies what setup prints as GitOps tools do, and expects no finding. Then it edits an object.
func TestNoDriftWithGitOps(t *testing.T) {
	for _, tool := range []struct {
		name string
		mark map[string]string // labels and annotations of the tool
		// update is set for client-side apply.
		update bool
	}{
		{"argocd-controller", map[string]string{"app.kubernetes.io/instance": "oooi", "argocd.argoproj.io/tracking-id": "oooi"}, false},
		{"kustomize-controller", map[string]string{"kustomize.toolkit.fluxcd.io/name": "oooi", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}, false},
		{"kubectl-client-side-apply", map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "x"}, true},
	} {
		t.Run(tool.name, func(t *testing.T) {
			s := driftSite(t)
			file := filepath.Join(t.TempDir(), "cluster.yaml")
			var exported []string
			for kind, name := range map[string]string{"HostedCluster": "demo", "NetworkAttachmentDefinition": "vlan100"} {
				text, err := yaml.Marshal(s.Get(kindOf(t, kind), "$ns", name).Object)
				if err != nil {
					t.Fatal(err)
				}
				exported = append(exported, string(text))
			}
			if err := os.WriteFile(file, []byte(strings.Join(exported, "---\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			printed, stderr, code := s.commands.Run("setup", "-f", "FILE", "-f", file, "--dry-run=client")
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			objects, err := documents.Read([]string{"-"}, strings.NewReader(printed))
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				for key, value := range tool.mark {
					metadata := o.GetAnnotations()
					if metadata == nil {
						metadata = map[string]string{}
					}
					metadata[key] = value
					o.SetAnnotations(metadata)
					if strings.Contains(key, "instance") || strings.Contains(key, "flux") {
						labels := o.GetLabels()
						labels[key] = value
						o.SetLabels(labels)
					}
				}
				s.applyAs(t, o.Unstructured, tool.name, tool.update)
			}
			s.runControl(t)
			if found := s.drifts(t); len(found) > 0 {
				t.Fatalf("after %s: %q", tool.name, found)
			}
			set := s.Get(setKind, "$ns", "demo-dns")
			if err := s.Client.Patch(t.Context(), set, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}`)), client.FieldOwner("kubectl-edit")); err != nil {
				t.Fatal(err)
			}
			s.expectDrift(t, `the object was changed by "kubectl-edit" at `, `, after "`+tool.name+`" applied it`, `let "`+tool.name+`" apply the object again`)
		})
	}
}

// applyAs applies an object with a field manager, by server-side apply or, with update, as kubectl apply does.
func (s *testSite) applyAs(t *testing.T, o *unstructured.Unstructured, manager string, update bool) {
	t.Helper()
	if o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "Namespace" {
		return // the test's cluster has them
	}
	var err error
	if update {
		err = client.IgnoreAlreadyExists(s.Client.Create(t.Context(), o, client.FieldOwner(manager)))
	} else {
		err = s.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership)
	}
	if err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// TestDriftAfterManagedFieldsWereDropped expects a finding without its cause if no field manager is known, as after
// kubectl replace with a file of kubectl get.
func TestDriftAfterManagedFieldsWereDropped(t *testing.T) {
	s := driftSite(t)
	s.commands.Setup()
	s.runControl(t)
	service := s.Get(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "$ns", "demo-dns")
	if err := unstructured.SetNestedField(service.Object, "x", "spec", "selector", "app"); err != nil {
		t.Fatal(err)
	}
	service.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
	time.Sleep(time.Second)
	if err := s.Client.Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	s.expectDrift(t, "fail\nService/demo-dns\nthe Service selects other pods: ")
}

// TestDriftInFolder checks a directory with objects as kubectl get prints them: without managed fields, and without
// kinds that a must-gather lacks.
func TestDriftInFolder(t *testing.T) {
	s := driftSite(t)
	s.commands.Setup()
	s.runControl(t)
	folder := t.TempDir()
	save := func() {
		t.Helper()
		for _, name := range []string{"CustomResourceDefinition", "Infra", "ProxyServer", "HostedCluster", "Service", "ConfigMap", "NetworkAttachmentDefinition", "StatefulSet", "Deployment", "Pod", "Namespace"} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kindOf(t, name))
			if err := s.Client.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				list.Items[i].SetManagedFields(nil)
			}
			text, err := yaml.Marshal(list.UnstructuredContent())
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, name+".yaml"), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	save()
	if r := s.Diagnose("--from", folder, "--only", driftCheck).Results[0]; r.Status != "pass" {
		t.Errorf("%s %s %q", r.Status, r.Reason, r.Findings)
	}
	s.Patch(schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "$ns", "demo-dns", `{"spec": {"selector": {"app": "x"}}}`)
	save()
	if r := s.Diagnose("--from", folder, "--only", driftCheck).Results[0]; r.Status != "fail" || len(r.Findings) != 1 || !strings.HasPrefix(r.Findings[0].Message, "the Service selects other pods: a source of the object has changed, or another version") {
		t.Errorf("%s %s %q", r.Status, r.Reason, r.Findings)
	}
}
