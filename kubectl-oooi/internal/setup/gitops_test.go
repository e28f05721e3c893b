package setup

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// TestFluxHealthChecks evaluates the expressions of docs/how-to/gitops.md.
func TestFluxHealthChecks(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(spec:\n.*?healthCheckExprs.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/how-to/gitops.md has no healthCheckExprs")
	}
	var kustomization struct {
		Spec struct {
			HealthCheckExprs []struct{ Kind, InProgress, Current string } `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(block[1], &kustomization); err != nil {
		t.Fatal(err)
	}
	env, err := cel.NewEnv(cel.Variable("metadata", cel.DynType), cel.Variable("status", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	evaluate := func(expression string, object map[string]any) bool {
		t.Helper()
		ast, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		value, _, err := program.Eval(object)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		return value.Value() == true
	}
	conditions := func(ready string) []any {
		return []any{map[string]any{"type": "NetworkValid", "status": "True"}, map[string]any{"type": "Ready", "status": ready}}
	}
	var kinds []string
	for _, check := range kustomization.Spec.HealthCheckExprs {
		kinds = append(kinds, check.Kind)
		for _, tc := range []struct {
			name                string
			status              map[string]any
			inProgress, current bool
		}{
			{"not looked at", map[string]any{}, true, false},
			{"of an old generation", map[string]any{"observedGeneration": 1, "conditions": conditions("True")}, true, true},
			{"not ready", map[string]any{"observedGeneration": 2, "conditions": conditions("False")}, false, false},
			{"ready", map[string]any{"observedGeneration": 2, "conditions": conditions("True")}, false, true},
		} {
			object := map[string]any{"metadata": map[string]any{"generation": 2}, "status": tc.status}
			if got := evaluate(check.InProgress, object); got != tc.inProgress {
				t.Errorf("%s %s: inProgress is %t", check.Kind, tc.name, got)
			}
			if got := evaluate(check.Current, object); got != tc.current {
				t.Errorf("%s %s: current is %t", check.Kind, tc.name, got)
			}
		}
	}
	if !slices.Equal(kinds, []string{"Infra", "ProxyServer"}) {
		t.Errorf("docs/how-to/gitops.md has checks for %v", kinds)
	}
}

// TestTeardownLooksForEveryKind compares the kinds that teardown looks for with those that are rendered, and their order.
func TestTeardownLooksForEveryKind(t *testing.T) {
	plan, _ := example(t)
	last := 0
	for _, o := range plan.own() {
		if o.GetKind() == "Infra" {
			continue
		}
		at := slices.IndexFunc(inventory.Kinds, func(k schema.GroupVersionKind) bool { return k == o.GroupVersionKind() })
		switch {
		case at < 0:
			t.Errorf("teardown does not look for %s", o.GroupVersionKind())
		case at < last:
			t.Errorf("%s is applied after a %s, and teardown deletes it after that", inventory.Of(o), inventory.Kinds[last].Kind)
		default:
			last = at
		}
	}
	if last == 0 || !strings.HasSuffix(inventory.Kinds[last].Kind, "Set") {
		t.Errorf("the last object of the plan is a %s", inventory.Kinds[last].Kind)
	}
}
