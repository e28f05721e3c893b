package cmd

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/cmdtest"
)

func TestAnOlderVersionDowngradesNothing(t *testing.T) {
	s := cmdtest.New(t, management.Get(t), Main)
	s.Setup()
	m := &corev1.ConfigMap{}
	m.Namespace, m.Name = s.Namespace, "demo-oooi-inventory"
	control := &appsv1.Deployment{}
	control.Namespace, control.Name = "oooi-system", "oooi-control"
	was := version
	version = func() string { return "v0.2.0" }
	t.Cleanup(func() { version = was })
	for _, tc := range []struct {
		name  string
		of    client.Object
		patch string
	}{
		{"workloads", m, `{"data": {"setup.yaml": %s}}`},
		{"control", control, `{"metadata": {"annotations": {"hostedcluster.densityops.com/setup-version": %s}}}`},
	} {
		values := map[client.Object][2]string{m: {`"version: v0.10.0"`, "null"}, control: {`"v0.10.0"`, "null"}}[tc.of]
		patch := func(value string) {
			if err := s.Client.Patch(t.Context(), tc.of, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, tc.patch, value))); err != nil {
				t.Fatal(err)
			}
		}
		patch(values[0])
		t.Log(tc.name)
		s.Refused("kubectl-oooi v0.10.0 has set this up, and this is v0.2.0")
		patch(values[1])
	}
	if said := s.Setup(); !strings.Contains(said, "Deployment oooi-system/oooi-control configured") {
		t.Errorf("a newer version said %s", said)
	}
	version = func() string { return "v0.1.0" }
	s.Refused("kubectl-oooi v0.2.0 has set this up, and this is v0.1.0: CustomResourceDefinitions, control and workloads would be downgraded")
	s.Setup("--allow-downgrade")
	version = func() string { return "(devel)" } // which has no order, and leaves the mark
	s.Setup()
	version = func() string { return "v0.0.9" }
	s.Refused("kubectl-oooi v0.1.0 has set this up")
	s.Setup("--allow-downgrade")
}
