// Package charts_test checks that the Helm charts have the objects of the kustomizations. The templates of
// virtual-ingress, which call functions of Helm, are checked by test/integration/ingress.
package charts_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/test/lab"
)

const (
	manifests = ".."
	folder    = "oooi"
)

// TestCRDs checks that the charts have current copies of the CRDs.
func TestCRDs(t *testing.T) {
	for folder, want := range map[string][]string{
		"oooi": {"infras", "proxyservers", "virtualingresses"}, "virtual-ingress": {"virtualingresses"},
	} {
		var copied []string
		entries, err := os.ReadDir(filepath.Join(folder, "crds"))
		lab.Must(t, err)
		for _, e := range entries {
			copied = append(copied, strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hostedcluster.densityops.com_"), ".yaml"))
			original, err := os.ReadFile(filepath.Join(manifests, "crds", e.Name()))
			lab.Must(t, err)
			got, err := os.ReadFile(filepath.Join(folder, "crds", e.Name()))
			if err != nil || !bytes.Equal(got, original) {
				t.Errorf("%s/crds/%s is stale; run make generate (%v)", folder, e.Name(), err)
			}
		}
		if !slices.Equal(copied, want) {
			t.Errorf("%s has CRDs of %q, want %q", folder, copied, want)
		}
	}
}

// objects has the decoded objects by "KIND [NAMESPACE] NAME".
type objects map[string]map[string]any

// add adds the objects of a YAML text.
func (o objects) add(t *testing.T, text []byte) {
	t.Helper()
	for _, document := range regexp.MustCompile(`(?m)^---$`).Split(string(text), -1) {
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if object == nil {
			continue // only comments
		}
		meta, _ := object["metadata"].(map[string]any)
		key, _ := object["kind"].(string)
		for _, part := range []string{"namespace", "name"} {
			if s, ok := meta[part].(string); ok {
				key += " " + s
			}
		}
		if o[key] != nil {
			t.Errorf("duplicate %s", key)
		}
		o[key] = object
	}
}

// render renders the chart as 'helm template --include-crds' would. It does not use Helm as a library, which takes
// minutes to build: for oooi's simple templates Helm also uses text/template, values as decoded from JSON, and
// encoding/json for toJson.
func render(t *testing.T, changes map[string]any) objects {
	t.Helper()
	values := defaults(t, folder)
	for key, value := range changes {
		if inner, ok := value.(map[string]any); ok && len(inner) > 0 && key != "nodeSelector" {
			merged, _ := values[key].(map[string]any)
			maps.Copy(merged, inner)
			continue
		}
		values[key] = value
	}
	all := objects{}
	for _, pattern := range []string{"crds/*", "templates/*"} {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			lab.Must(t, err)
			if strings.HasPrefix(pattern, "templates") {
				parsed, err := template.New(path).Option("missingkey=zero").Funcs(template.FuncMap{"toJson": toJSON}).Parse(string(text))
				lab.Must(t, err)
				var out bytes.Buffer
				lab.Must(t, parsed.Execute(&out, map[string]any{"Values": values}))
				text = out.Bytes()
			}
			all.add(t, text)
		}
	}
	return all
}

func toJSON(v any) (string, error) {
	text, err := json.Marshal(v)
	return string(text), err
}

// defaults returns the values in values.yaml of a chart.
func defaults(t *testing.T, folder string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	lab.Must(t, err)
	var values map[string]any
	lab.Must(t, yaml.UnmarshalStrict(text, &values))
	return values
}

// base returns the objects that kustomize builds from manifests/base, without the annotation by which Helm keeps them: who
// uninstalls the release of the chart, which has only these objects, means to delete them. Helm never deletes CRDs.
func base(t *testing.T) objects {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(manifests, "base"))
	lab.Must(t, err)
	text, err := built.AsYaml()
	lab.Must(t, err)
	all := objects{}
	all.add(t, text)
	for key, o := range all {
		meta, _ := o["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		if annotations["helm.sh/resource-policy"] != "keep" || annotations["argocd.argoproj.io/sync-options"] != "Prune=false,Delete=false" || annotations["kustomize.toolkit.fluxcd.io/prune"] != "disabled" {
			t.Errorf("%s has the annotations %v; GitOps tools would delete it with the application of one Infra", key, annotations)
		}
		if o["kind"] != "CustomResourceDefinition" {
			delete(annotations, "helm.sh/resource-policy")
		}
	}
	return all
}

func TestDefaultsRenderTheBase(t *testing.T) {
	if diff := cmp.Diff(base(t), render(t, nil)); diff != "" {
		t.Errorf("the chart differs from the output of kustomize (-kustomize +chart):\n%s", diff)
	}
}

const deploymentKey = "Deployment oooi-system oooi-control"

// TestValues sets each value, and checks that only the corresponding field changes.
func TestValues(t *testing.T) {
	on := func(change func(spec, pod, container map[string]any)) func(objects) {
		return func(all objects) {
			spec, _ := all[deploymentKey]["spec"].(map[string]any)
			pod, container := podOf(spec)
			change(spec, pod, container)
		}
	}
	quoted := map[string]any{"memory": "1Gi # not a comment", "cpu": "'"}
	for name, tt := range map[string]struct {
		values map[string]any
		change func(objects)
	}{
		"image": {map[string]any{"image": "registry.example.com:5000/oooi@sha256:00"}, on(func(_, _, c map[string]any) {
			c["image"] = "registry.example.com:5000/oooi@sha256:00"
		})},
		"replicas":  {map[string]any{"replicas": float64(3)}, on(func(s, _, _ map[string]any) { s["replicas"] = float64(3) })},
		"resources": {map[string]any{"resources": map[string]any{"limits": quoted}}, nil},
		"imagePullSecrets": {map[string]any{"imagePullSecrets": []any{map[string]any{"name": "mirror"}}}, on(func(_, p, _ map[string]any) {
			p["imagePullSecrets"] = []any{map[string]any{"name": "mirror"}}
		})},
		"nodeSelector": {map[string]any{"nodeSelector": map[string]any{"a/b": "true"}}, on(func(_, p, _ map[string]any) { p["nodeSelector"] = map[string]any{"a/b": "true"} })},
		"tolerations": {map[string]any{"tolerations": []any{map[string]any{"operator": "Exists"}}}, on(func(_, p, _ map[string]any) {
			p["tolerations"] = []any{map[string]any{"operator": "Exists"}}
		})},
		"namespace": {map[string]any{"namespace": map[string]any{"create": false}}, func(all objects) { delete(all, "Namespace oooi-system") }},
	} {
		t.Run(name, func(t *testing.T) {
			want := base(t)
			if tt.change == nil { // resources: Helm merges maps
				tt.change = on(func(_, _, c map[string]any) {
					r, _ := c["resources"].(map[string]any)
					r["limits"] = quoted
				})
			}
			tt.change(want)
			if diff := cmp.Diff(want, render(t, tt.values)); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("podMonitor", func(t *testing.T) {
		got, want := render(t, map[string]any{"podMonitor": map[string]any{"enabled": true}}), base(t)
		monitors, err := os.ReadFile(filepath.Join(manifests, "monitoring", "podmonitor.yaml"))
		lab.Must(t, err)
		want.add(t, monitors)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestSchema validates values against values.schema.json with the validator that the API server uses for CRDs.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "values.schema.json"))
	lab.Must(t, err)
	var schema spec.Schema
	lab.Must(t, yaml.Unmarshal(text, &schema))
	schema.Schema = "" // not a field of the API server's schemas
	validator := validate.NewSchemaValidator(&schema, nil, "", strfmt.Default)
	values := defaults(t, folder)
	if result := validator.Validate(values); !result.IsValid() {
		t.Errorf("the defaults are invalid: %v", result.Errors)
	}
	for key := range values {
		if _, ok := schema.Properties[key]; !ok {
			t.Errorf("the schema does not have %s", key)
		}
	}
	for key, wrong := range map[string]any{
		"image": "", "replicas": 1.5, "resources": map[string]any{"request": map[string]any{}}, "nodeSelector": map[string]any{"a": true},
		"imagePullSecrets": []any{"mirror"}, "tolerations": map[string]any{}, "namespace": map[string]any{"name": "x"}, "podMonitor": map[string]any{"enabled": "yes"}, "replicaCount": float64(2),
	} {
		changed := defaults(t, folder)
		changed[key] = wrong
		if validator.Validate(changed).IsValid() {
			t.Errorf("%s: %v is accepted", key, wrong)
		}
	}
}

// TestREADME checks that the README of each chart has all values.
func TestREADME(t *testing.T) {
	for folder, groups := range map[string][]string{"oooi": {"namespace", "podMonitor"}, "virtual-ingress": {"rbac", "log", "podMonitor"}} {
		text, err := os.ReadFile(filepath.Join(folder, "README.md"))
		lab.Must(t, err)
		for key, value := range defaults(t, folder) {
			names := []string{key}
			if inner, ok := value.(map[string]any); ok && slices.Contains(groups, key) {
				names = nil
				for name := range inner {
					names = append(names, key+"."+name)
				}
			}
			for _, name := range names {
				if !strings.Contains(string(text), "`"+name+"`") {
					t.Errorf("the README of %s does not have the value %s", folder, name)
				}
			}
		}
	}
}

// podOf returns the pod spec of a Deployment and its only container, which is nil if there are several.
func podOf(spec map[string]any) (pod, container map[string]any) {
	template, _ := spec["template"].(map[string]any)
	pod, _ = template["spec"].(map[string]any)
	if list, _ := pod["containers"].([]any); len(list) == 1 {
		container, _ = list[0].(map[string]any)
	}
	return pod, container
}
