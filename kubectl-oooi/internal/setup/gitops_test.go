package setup

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// TestTeardownSearchesEveryKind compares the kinds that teardown searches with the rendered ones, and their order.
func TestTeardownSearchesEveryKind(t *testing.T) {
	plan, _ := example(t)
	last := 0
	for _, o := range plan.infraObjects() {
		if o.GetKind() == "Infra" {
			continue
		}
		at := slices.IndexFunc(inventory.Kinds, func(k schema.GroupVersionKind) bool { return k == o.GroupVersionKind() })
		switch {
		case at < 0:
			t.Errorf("teardown does not search for %s", o.GroupVersionKind())
		case at < last:
			t.Errorf("%s is applied after a %s, and also deleted after it", inventory.Of(o), inventory.Kinds[last].Kind)
		default:
			last = at
		}
	}
	if last == 0 || !strings.HasSuffix(inventory.Kinds[last].Kind, "Set") {
		t.Errorf("the last object of the plan is a %s", inventory.Kinds[last].Kind)
	}
}
