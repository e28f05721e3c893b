package setup

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
	"github.com/densityops/oooi/kubectl-oooi/internal/render"
	"github.com/densityops/oooi/test/lab"
)

// TestPodPlacement compares the pods of all workloads, of their checks before a change and of tests with the placement in an Infra.
func TestPodPlacement(t *testing.T) {
	selector, tolerations := map[string]string{"example.com/vlan100": ""}, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for name, tc := range map[string]struct {
		placement   *v1alpha1.NodePlacement
		selector    map[string]string
		tolerations []corev1.Toleration
	}{
		"none":     {},
		"empty":    {placement: &v1alpha1.NodePlacement{}},
		"no nodes": {placement: &v1alpha1.NodePlacement{NodeSelector: map[string]v1alpha1.LabelValue{}, Tolerations: []corev1.Toleration{}}},
		"both": {&v1alpha1.NodePlacement{NodeSelector: map[string]v1alpha1.LabelValue{"example.com/vlan100": ""}, Tolerations: tolerations},
			selector, tolerations},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme() // the fake client adds kinds to it
			lab.Must(t, clientgoscheme.AddToScheme(scheme))
			known := exampleKnown(t)
			known.Infra.Spec.NodePlacement = tc.placement
			plan, found := makePlan(t, known), map[string]int{}
			for _, o := range plan.Objects {
				if o.GetKind() != "StatefulSet" && o.GetKind() != "Deployment" {
					continue
				}
				found[o.GetKind()]++
				template, err := podTemplate(o)
				lab.Must(t, err)
				pods := map[string]corev1.PodSpec{o.GetName(): template.Spec}
				selector, tolerations := tc.selector, tc.tolerations
				if o.GetKind() == "Deployment" { // control is not on the VLAN
					selector, tolerations = nil, nil
				} else {
					probe := &render.Probe{Name: "demo-test", Like: &template.Spec}
					job, _, err := probe.Objects(&render.Input{Infra: known.Infra, Written: &unstructured.Unstructured{}})
					lab.Must(t, err)
					pods["a test of "+o.GetName()] = job.Spec.Template.Spec
					check := &podCheck{
						rollout:      &rollout{Applier: &Applier{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}, plan: plan},
						ObjectChange: &ObjectChange{Entry: inventory.Of(o), rendered: o},
					}
					lab.Must(t, check.start(t.Context()))
					pods["the check of "+o.GetName()] = check.job.Spec.Template.Spec
				}
				for name, pod := range pods {
					if !equality.Semantic.DeepEqual(pod.NodeSelector, selector) || !equality.Semantic.DeepEqual(pod.Tolerations, tolerations) {
						t.Errorf("%s has the node selector %v and the tolerations %v, want %v and %v", name, pod.NodeSelector, pod.Tolerations, selector, tolerations)
					}
				}
			}
			if found["StatefulSet"] != 3 || found["Deployment"] != 1 {
				t.Errorf("found %v", found)
			}
		})
	}
}

// TestNodeLabelsAreValidatedWithoutCluster covers files that are only rendered, for a GitOps tool.
func TestNodeLabelsAreValidatedWithoutCluster(t *testing.T) {
	for key, value := range map[string]v1alpha1.LabelValue{"vlan 100": "", "a": "b c", "": ""} {
		known := exampleKnown(t)
		known.Infra.Spec.NodePlacement = &v1alpha1.NodePlacement{NodeSelector: map[string]v1alpha1.LabelValue{key: value}}
		if _, err := Make(known, exampleImages); err == nil || !strings.HasPrefix(err.Error(), "spec.nodePlacement.nodeSelector: Invalid value: ") {
			t.Errorf("%q=%q: Make returns %v", key, value, err)
		}
	}
}
