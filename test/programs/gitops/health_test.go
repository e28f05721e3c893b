// Package gitops_test evaluates the health checks of docs/how-to/gitops.md as Flux and Argo CD do.
package gitops_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

// A healthState is a state of an Infra or ProxyServer of generation 2, and the health that GitOps tools should report
// for it.
type healthState struct {
	name       string
	observed   int    // generation; 0 for an object without a status
	ready      string // empty for an object without the condition
	inProgress bool   // in Flux
	argo       string // status in Argo CD
}

var healthStates = []healthState{
	{"without a status", 0, "", true, "Progressing"},
	{"ready, of an earlier generation", 1, "True", true, "Progressing"},
	{"without the condition", 2, "", false, "Progressing"},
	{"unknown", 2, "Unknown", false, "Progressing"},
	{"not ready", 2, "False", false, "Degraded"},
	{"ready", 2, "True", false, "Healthy"},
}

func (s healthState) object() map[string]any {
	object := map[string]any{"metadata": map[string]any{"generation": 2}, "status": map[string]any{}}
	if s.observed == 0 {
		return object
	}
	conditions := []any{map[string]any{"type": "NetworkValid", "status": "True", "message": "the network is valid"}}
	if s.ready != "" {
		conditions = append(conditions, map[string]any{"type": "Ready", "status": s.ready, "message": "ready is " + s.ready})
	}
	object["status"] = map[string]any{"observedGeneration": s.observed, "conditions": conditions}
	return object
}

// documented decodes the block of the page that contains a match of a regular expression.
func documented(t *testing.T, has string, into any) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/how-to/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n((?:[^`]*\n)??" + has + ".*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("docs/how-to/gitops.md has no block with %s", has)
	}
	if err := yaml.Unmarshal(block[1], into); err != nil {
		t.Fatal(err)
	}
}

// TestFluxHealthChecks evaluates the expressions of the page.
func TestFluxHealthChecks(t *testing.T) {
	var kustomization struct {
		Spec struct {
			HealthCheckExprs []struct{ Kind, InProgress, Current string } `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	documented(t, `  healthCheckExprs:`, &kustomization)
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
	var kinds []string
	for _, check := range kustomization.Spec.HealthCheckExprs {
		kinds = append(kinds, check.Kind)
		for _, state := range healthStates {
			if got := evaluate(check.InProgress, state.object()); got != state.inProgress {
				t.Errorf("%s %s: inProgress is %t", check.Kind, state.name, got)
			}
			if got := evaluate(check.Current, state.object()); !state.inProgress && got != (state.argo == "Healthy") {
				t.Errorf("%s %s: current is %t", check.Kind, state.name, got)
			}
		}
	}
	if !slices.Equal(kinds, []string{"Infra", "ProxyServer"}) {
		t.Errorf("docs/how-to/gitops.md has checks for %v", kinds)
	}
}

// TestArgoCDHealthCheck runs the script of docs/how-to/gitops.md as Argo CD does: the object is the global obj, the
// result is a table.
func TestArgoCDHealthCheck(t *testing.T) {
	var configMap struct{ Data map[string]string }
	documented(t, `data:\n  resource\.customizations\.health`, &configMap)
	script := configMap.Data["resource.customizations.health.hostedcluster.densityops.com_Infra"]
	for _, state := range healthStates {
		vm := lua.NewState()
		defer vm.Close()
		vm.SetGlobal("obj", luaValue(vm, state.object()))
		if err := vm.DoString(script); err != nil {
			t.Fatalf("%s: %v", state.name, err)
		}
		health, ok := vm.Get(-1).(*lua.LTable)
		if !ok {
			t.Fatalf("%s: the script returned %v", state.name, vm.Get(-1))
		}
		if got := health.RawGetString("status").String(); got != state.argo {
			t.Errorf("%s: the status is %s, expected %s", state.name, got, state.argo)
		}
		if message := health.RawGetString("message").String(); !state.inProgress && state.ready != "" && message != "ready is "+state.ready {
			t.Errorf("%s: the message is %q", state.name, message)
		}
	}
}

// luaValue converts a value of a JSON object to Lua.
func luaValue(vm *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := vm.NewTable()
		for key, field := range value {
			table.RawSetString(key, luaValue(vm, field))
		}
		return table
	case []any:
		table := vm.NewTable()
		for _, item := range value {
			table.Append(luaValue(vm, item))
		}
		return table
	case int:
		return lua.LNumber(value)
	case string:
		return lua.LString(value)
	default:
		panic(fmt.Sprintf("%T is not converted to Lua", value))
	}
}
