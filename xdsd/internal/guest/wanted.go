package guest

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Wanted is what one Infra wants in its hosted cluster.
type Wanted struct {
	// Infra is who wants it.
	Infra types.NamespacedName
	// Apps is its appsIngress.
	Apps *v1alpha1.AppsIngress
	// Service is the applications' Service.
	Service types.NamespacedName
}

// fieldManager is who applies in a hosted cluster.
const fieldManager = v1alpha1.ManagedBy

// defaultSelector selects the pods of OpenShift's default router.
var defaultSelector = map[string]string{"ingresscontroller.operator.openshift.io/deployment-ingresscontroller": "default"}

// selector is that of the Service.
func (w *Wanted) selector() map[string]string {
	if in := w.Apps.Service; in != nil && len(in.Selector) > 0 {
		return in.Selector
	}
	return defaultSelector
}

func (w *Wanted) labels() map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}
}

func (w *Wanted) annotations() map[string]string {
	return map[string]string{v1alpha1.AnnotationInfra: w.Infra.String()}
}

// Fault is why something is not as wanted. The zero Fault is none.
type Fault struct { //nolint:errname // it is what a status shows, and an error on the way there
	Reason  v1alpha1.AppsIngressReason
	Message string
}

// Error is error's.
func (f *Fault) Error() string { return string(f.Reason) + ": " + f.Message }
