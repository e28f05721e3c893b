package guest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

const (
	// metallbNamespace is the namespace of the operator and of MetalLB.
	metallbNamespace = "metallb-system"
	// metallbName is the only name of a MetalLB object that the operator reconciles.
	metallbName = "metallb"
)

// Kinds without Go types in this module's dependencies.
var (
	kindNamespace        = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	kindMetalLB          = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "MetalLB"}
	kindPool             = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "IPAddressPool"}
	kindL2Advertisement  = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "L2Advertisement"}
	kindServiceL2Status  = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "ServiceL2Status"}
	kindServiceBGPStatus = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "ServiceBGPStatus"}
)

// EnsureMetalLB installs MetalLB with the Operator Lifecycle Manager, and applies the pool of the apps address and its
// advertisement. It returns nil if MetalLB is installed, or if the Infra does not request the installation. It does not
// wait: while a step is in progress, it returns a Fault with reason MetalLBMissing that names the step, and must be
// called again. It returns other Faults if a step failed. It uses objects that other clients created, and does not
// change them.
func (c *Cluster) EnsureMetalLB(ctx context.Context, w *Wanted) *Fault {
	if !w.Apps.MetalLB.ShouldInstall() {
		return nil
	}
	existing, err := c.findMetalLB(ctx)
	switch {
	case err != nil:
		return installFault(err, "looking for MetalLB")
	case existing.isForeign():
		return c.useForeignMetalLB(ctx, w, existing)
	case !existing.olm:
		return installFailed("the hosted cluster has no Operator Lifecycle Manager (%s is not served): install it, or install MetalLB manually and remove metallb.install", olmGroup)
	}
	if fault := c.ensureOperator(ctx, w, existing.subscription); fault != nil {
		return fault
	}
	spec := map[string]any{}
	if class := w.Apps.MetalLB.LoadBalancerClass; class != "" {
		spec["loadBalancerClass"] = class
	}
	metallb, fault := c.ensure(ctx, w, desired(w, kindMetalLB, metallbNamespace, metallbName, spec))
	if fault != nil {
		return fault
	}
	if fault := c.ensurePool(ctx, w, metallbNamespace); fault != nil {
		return fault
	}
	return metallbFault(metallb)
}

// desired returns an object with our labels and annotations. Without a spec the object has none.
func desired(w *Wanted, kind schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	o := object(kind, namespace, name)
	o.SetLabels(w.labels())
	o.SetAnnotations(w.annotations())
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

func object(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// ensure applies an object, unless it exists and does not belong to the Infra. It returns the object as it was
// before, or nil if it did not exist.
func (c *Cluster) ensure(ctx context.Context, w *Wanted, wanted *unstructured.Unstructured) (*unstructured.Unstructured, *Fault) {
	what := describe(wanted)
	existing := object(wanted.GroupVersionKind(), "", "")
	err := c.client.Get(ctx, client.ObjectKeyFromObject(wanted), existing)
	switch {
	case apierrors.IsNotFound(err): // Apply reports whether the API is served
		existing = nil
	case err != nil:
		return nil, installFault(err, "reading "+what)
	case existing.GetDeletionTimestamp() != nil:
		return existing, installing("%s is being deleted, and will be created again", what)
	case existing.GetAnnotations()[v1alpha1.AnnotationInfra] != w.Infra.String():
		return existing, nil
	}
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return existing, installFault(err, "applying "+what)
	}
	return existing, nil
}

// isOurs reports whether an object was created for an Infra, of any name.
func isOurs(o client.Object) bool { return o.GetAnnotations()[v1alpha1.AnnotationInfra] != "" }

// metallbFault returns why MetalLB does not run according to its operator, or nil if it runs or the operator has
// not reported yet.
func metallbFault(metallb *unstructured.Unstructured) *Fault {
	if metallb == nil {
		return nil
	}
	status := struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(metallb.Object, &status); err != nil {
		return installFailed("reading the status of %s: %v", describe(metallb), err)
	}
	conditions := status.Status.Conditions
	if meta.IsStatusConditionTrue(conditions, "Available") {
		return nil
	}
	if c := meta.FindStatusCondition(conditions, "Degraded"); c != nil && c.Status == metav1.ConditionTrue {
		return installFailed("%s is degraded: %s", describe(metallb), reasonAndMessage(c.Reason, c.Message))
	}
	if c := meta.FindStatusCondition(conditions, "Progressing"); c != nil && c.Status == metav1.ConditionTrue {
		return installing("%s is not available yet: %s; see the pods of namespace %s in the hosted cluster", describe(metallb), reasonAndMessage(c.Reason, c.Message), metallb.GetNamespace())
	}
	return nil
}

func describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

// reasonAndMessage joins a reason and a message, either of which may be empty.
func reasonAndMessage(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	default:
		return reason + ": " + message
	}
}

// installing returns a Fault for an installation in progress.
func installing(format string, args ...any) *Fault {
	return &Fault{v1alpha1.AppsIngressMetalLBMissing, "MetalLB is being installed: " + fmt.Sprintf(format, args...)}
}

func installFailed(format string, args ...any) *Fault {
	return &Fault{v1alpha1.AppsIngressInstallFailed, "MetalLB cannot be installed: " + fmt.Sprintf(format, args...)}
}

// installFault converts an error of a hosted cluster's API server during an installation.
func installFault(err error, action string) *Fault {
	var status apierrors.APIStatus
	refused := errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError &&
		!apierrors.IsUnauthorized(err) && !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return installing("%s: the namespace is being deleted, and will be created again", action)
	case apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		return installFailed("%s: %v: create the namespace", action, err)
	case isMissing(err): // the operator's package contains the CRDs
		return installing("%s: its API is not served yet; see the CustomResourceDefinitions of %s in the hosted cluster", action, metallbGroup)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		return installing("%s: MetalLB's webhook does not answer yet; see the pods of namespace %s in the hosted cluster: %v", action, metallbNamespace, err)
	case refused:
		return installFailed("%s: %v", action, err)
	}
	return apiFault(err, action)
}
