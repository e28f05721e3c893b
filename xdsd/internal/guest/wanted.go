package guest

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/densityops/oooi/api/v1alpha1"
)

// Wanted determines the objects that an Infra requires in its hosted cluster.
type Wanted struct {
	// Infra is the Infra's namespace and name.
	Infra types.NamespacedName
	// Apps is spec.appsIngress of the Infra, which must not be nil.
	Apps *v1alpha1.AppsIngress
	// Service is the namespace and name of the apps Service.
	Service types.NamespacedName
}

// defaultSelector selects the pods of OpenShift's default router.
var defaultSelector = map[string]string{"ingresscontroller.operator.openshift.io/deployment-ingresscontroller": "default"}

// selector returns the selector of the Service.
func (w *Wanted) selector() map[string]string {
	if in := w.Apps.Service; in != nil && len(in.Selector) > 0 {
		return in.Selector
	}
	return defaultSelector
}

// advertisementName returns the name of the L2Advertisement that the Infra names; empty for none.
func (w *Wanted) advertisementName() string {
	if w.Apps.MetalLB == nil {
		return ""
	}
	return w.Apps.MetalLB.L2AdvertisementName
}

// Fault is why the apps ingress does not work: the reason and the message for status.appsIngress of the Infra.
type Fault struct { //nolint:errname // mainly part of a status, and only returned as an error
	Reason  v1alpha1.AppsIngressReason
	Message string
}

// Error implements error. It returns "Reason: message".
func (f *Fault) Error() string { return string(f.Reason) + ": " + f.Message }
