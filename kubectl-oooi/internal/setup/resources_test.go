package setup

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
	"github.com/densityops/oooi/test/lab"
)

// limited returns resources with a memory request and limit.
func limited(request, limit string) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(request)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(limit), corev1.ResourceCPU: resource.MustParse("1")},
	}
}

func withControl(name string, resources *corev1.ResourceRequirements) *v1alpha1.Infra {
	infra := &v1alpha1.Infra{}
	infra.Namespace, infra.Name = "clusters", name
	infra.Spec.InfraComponents.Control = &v1alpha1.InfraControl{Resources: resources}
	return infra
}

// TestControlResourcesFromInfra checks the containers of both Deployments that setup creates once per cluster.
func TestControlResourcesFromInfra(t *testing.T) {
	for name, test := range map[string]struct {
		own    *corev1.ResourceRequirements
		others []*v1alpha1.Infra
		want   string // limit of memory; empty for none
	}{
		"default":            {},
		"own":                {own: limited("64Mi", "256Mi"), want: "256Mi"},
		"of another Infra":   {others: []*v1alpha1.Infra{withControl("z", limited("1Mi", "1Gi")), withControl("a", limited("64Mi", "512Mi"))}, want: "512Mi"},
		"the same in both":   {own: limited("64Mi", "1Gi"), others: []*v1alpha1.Infra{withControl("other", limited("64Mi", "1024Mi"))}, want: "1Gi"},
		"another without it": {own: limited("64Mi", "1Gi"), others: []*v1alpha1.Infra{withControl("other", nil)}, want: "1Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			known := exampleKnown(t)
			known.VirtualIngress = true
			known.Infra.Spec.InfraComponents.Control = &v1alpha1.InfraControl{Resources: test.own}
			for _, other := range test.others {
				known.files = append(known.files, objectOf(site.Infras, other))
			}
			plan := makePlan(t, known)
			found := 0
			for _, o := range plan.Objects {
				if o.GetKind() != "Deployment" {
					continue
				}
				var d appsv1.Deployment
				lab.Must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
				found++
				for _, c := range d.Spec.Template.Spec.Containers {
					limit, limited := c.Resources.Limits[corev1.ResourceMemory]
					if limited != (test.want != "") || limited && limit.String() != test.want {
						t.Errorf("container %s of %s has the limits %v, want %q", c.Name, d.Name, c.Resources.Limits, test.want)
					}
					if c.Resources.Requests.Memory().IsZero() {
						t.Errorf("container %s of %s requests %v", c.Name, d.Name, c.Resources.Requests)
					}
				}
			}
			if found != 2 {
				t.Errorf("%d Deployments, want control and ingress", found)
			}
		})
	}
}

func TestConflictingControlResources(t *testing.T) {
	known := exampleKnown(t)
	known.Infra.Spec.InfraComponents.Control = &v1alpha1.InfraControl{Resources: limited("1Mi", "1Gi")}
	known.files = append(known.files, objectOf(site.Infras, withControl("other", limited("1Mi", "2Gi"))))
	const want = "spec.infraComponents.control.resources: Infra clusters/other sets other resources for control, which all Infras share; set the same in both, or remove the field from one of them"
	if _, err := Make(known, exampleImages); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Make returns %v, want %q", err, want)
	}
}
