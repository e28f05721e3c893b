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
	// metallbNamespace is where the operator and MetalLB are installed.
	metallbNamespace = "metallb-system"
	// metallbName is the only name of a MetalLB object that the operator heeds.
	metallbName = "metallb"
)

// Kinds that have no Go types here.
var (
	kindNamespace       = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	kindMetalLB         = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "MetalLB"}
	kindPool            = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "IPAddressPool"}
	kindL2Advertisement = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "L2Advertisement"}
)

// EnsureMetalLB installs MetalLB by the Operator Lifecycle Manager where that is asked for,
// with the pool that the apps address comes from, and its advertisement. It waits
// for nothing: a Fault of reason MetalLBMissing names the step that is under way, and the
// caller comes again. What others have made is left as it is, and counts as made.
func (c *Cluster) EnsureMetalLB(ctx context.Context, w *Wanted) *Fault {
	if !w.Apps.MetalLB.ShouldInstall() {
		return nil
	}
	there, err := c.findMetalLB(ctx)
	switch {
	case err != nil:
		return installFault(err, "looking for MetalLB")
	case there.isOthers():
		return c.joinMetalLB(ctx, w, there)
	case !there.olm:
		return installFailed("the hosted cluster has no Operator Lifecycle Manager (%s is not served): install it, or install MetalLB manually and remove metallb.install", olmGroup)
	}
	if fault := c.ensureOperator(ctx, w, there.subscription); fault != nil {
		return fault
	}
	spec := map[string]any{}
	if class := w.Apps.MetalLB.LoadBalancerClass; class != "" {
		spec["loadBalancerClass"] = class
	}
	metallb, fault := c.ensure(ctx, w, own(w, kindMetalLB, metallbNamespace, metallbName, spec))
	if fault != nil {
		return fault
	}
	if fault := c.ensurePool(ctx, w, metallbNamespace); fault != nil {
		return fault
	}
	return running(metallb)
}

// own is an object as it is to be. It has no spec where that is nil.
func own(w *Wanted, kind schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
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

// ensure applies an object unless it is there and not the Infra's. It returns the object
// as it was found; nil where it was not there.
func (c *Cluster) ensure(ctx context.Context, w *Wanted, wanted *unstructured.Unstructured) (*unstructured.Unstructured, *Fault) {
	what := describe(wanted)
	there := object(wanted.GroupVersionKind(), "", "")
	err := c.client.Get(ctx, client.ObjectKeyFromObject(wanted), there)
	switch {
	case apierrors.IsNotFound(err): // its kind may not be served either, which applying tells
		there = nil
	case err != nil:
		return nil, installFault(err, "reading "+what)
	case there.GetDeletionTimestamp() != nil:
		return there, installing("%s is being deleted, and will be created again", what)
	case there.GetAnnotations()[v1alpha1.AnnotationInfra] != w.Infra.String():
		return there, nil
	}
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return there, installFault(err, "applying "+what)
	}
	return there, nil
}

// isOurs reports whether an object was made for an Infra, whichever that is.
func isOurs(o client.Object) bool { return o.GetAnnotations()[v1alpha1.AnnotationInfra] != "" }

// running says what MetalLB's operator says of MetalLB; nil when it runs, and where the
// operator has not said anything yet.
func running(metallb *unstructured.Unstructured) *Fault {
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
	said := status.Status.Conditions
	if meta.IsStatusConditionTrue(said, "Available") {
		return nil
	}
	if c := meta.FindStatusCondition(said, "Degraded"); c != nil && c.Status == metav1.ConditionTrue {
		return installFailed("%s is degraded: %s", describe(metallb), because(c.Reason, c.Message))
	}
	if c := meta.FindStatusCondition(said, "Progressing"); c != nil && c.Status == metav1.ConditionTrue {
		return installing("%s is not available yet: %s; see the pods of namespace %s in the hosted cluster", describe(metallb), because(c.Reason, c.Message), metallb.GetNamespace())
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

// because joins a reason and a message, either of which may be missing.
func because(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	default:
		return reason + ": " + message
	}
}

// installing is the fault of an installation that is under way.
func installing(format string, args ...any) *Fault {
	return &Fault{v1alpha1.AppsIngressMetalLBMissing, "MetalLB is being installed: " + fmt.Sprintf(format, args...)}
}

func installFailed(format string, args ...any) *Fault {
	return &Fault{v1alpha1.AppsIngressInstallFailed, "MetalLB cannot be installed: " + fmt.Sprintf(format, args...)}
}

// installFault says what an error of a hosted cluster's API server means to an installation.
func installFault(err error, doing string) *Fault {
	var status apierrors.APIStatus
	refused := errors.As(err, &status) && status.Status().Code >= http.StatusBadRequest && status.Status().Code < http.StatusInternalServerError &&
		!apierrors.IsUnauthorized(err) && !apierrors.IsTimeout(err) && !apierrors.IsTooManyRequests(err)
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return installing("%s: the namespace is being deleted, and will be created again", doing)
	case apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces":
		return installFailed("%s: %v: create the namespace", doing, err)
	case isMissing(err): // CRDs come with the operator
		return installing("%s: its API is not served yet; see the CustomResourceDefinitions of %s in the hosted cluster", doing, metallbGroup)
	case apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
		return installing("%s: MetalLB's webhook does not answer yet; see the pods of namespace %s in the hosted cluster: %v", doing, metallbNamespace, err)
	case refused:
		return installFailed("%s: %v", doing, err)
	}
	return fault(err, doing)
}
