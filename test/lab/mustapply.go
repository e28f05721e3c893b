package lab

import (
	"context"
	"strings"
	"testing"
)

// MustApply applies YAML streams like ApplyYAML, and fails the test if the API server rejects an object.
func (cp *ControlPlane) MustApply(tb testing.TB, yaml ...string) {
	tb.Helper()
	Must(tb, cp.ApplyYAML(tb.Context(), []byte(strings.Join(yaml, "\n---\n"))))
}

// Create is MustApply of objects that are deleted when the test ends, except namespaces, which nothing would empty.
func (cp *ControlPlane) Create(tb testing.TB, yaml ...string) {
	tb.Helper()
	stream := strings.Join(yaml, "\n---\n")
	cp.MustApply(tb, stream)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), WaitTimeout) // the test's context is done
		defer cancel()
		objects, err := ParseYAML([]byte(stream))
		Report(tb, err)
		for _, object := range objects {
			if object.GetKind() == "Namespace" {
				continue
			}
			Report(tb, cp.Delete(ctx, object))
		}
	})
}
