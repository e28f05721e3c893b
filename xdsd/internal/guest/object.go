package guest

import (
	"context"
	"errors"
	"fmt"
	"maps"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

const (
	metallbGroup = "metallb.io"
	olmGroup     = "operators.coreos.com" // of the Operator Lifecycle Manager
)

// Kinds of objects in hosted clusters.
var (
	kindNamespace      = corev1.SchemeGroupVersion.WithKind("Namespace")
	kindService        = corev1.SchemeGroupVersion.WithKind("Service")
	kindServiceAccount = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	kindPod            = corev1.SchemeGroupVersion.WithKind("Pod")
	kindEvent          = corev1.SchemeGroupVersion.WithKind("Event")
	kindRole           = rbacv1.SchemeGroupVersion.WithKind("Role")
	kindRoleBinding    = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")

	kindMetalLB          = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "MetalLB"}
	kindPool             = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "IPAddressPool"}
	kindL2Advertisement  = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "L2Advertisement"}
	kindBGPAdvertisement = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "BGPAdvertisement"}
	kindServiceL2Status  = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "ServiceL2Status"}
	kindServiceBGPStatus = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "ServiceBGPStatus"}

	kindOperatorGroup = schema.GroupVersionKind{Group: olmGroup, Version: "v1", Kind: "OperatorGroup"}
	kindSubscription  = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "Subscription"}
	kindCSV           = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "ClusterServiceVersion"}
)

// mapper maps the kinds to resources without requests for discovery, also those that a hosted cluster does not serve.
var mapper = func() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{kindNamespace, authenticationv1.SchemeGroupVersion.WithKind("TokenReview")} {
		m.Add(kind, meta.RESTScopeRoot)
	}
	for _, kind := range []schema.GroupVersionKind{
		kindService, kindServiceAccount, kindRole, kindRoleBinding, kindMetalLB, kindPool, kindL2Advertisement, kindBGPAdvertisement,
		kindServiceL2Status, kindServiceBGPStatus, kindOperatorGroup, kindSubscription, kindCSV, kindPod, kindEvent,
	} {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	return m
}()

// fieldManager is the field manager of objects in hosted clusters.
const fieldManager = client.FieldOwner(v1alpha1.ManagedBy)

// Errors of ensure about objects that it does not change.
var (
	errForeign  = errors.New("exists and is not owned by Infra")
	errDeleting = errors.New("is being deleted, and will be created again")
)

// object returns an object with a name and the fields.
func object(kind schema.GroupVersionKind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// spec returns the fields of an object that has only a spec. It omits empty strings.
func spec(fields map[string]any) map[string]any {
	maps.DeleteFunc(fields, func(_ string, value any) bool { return value == "" })
	return map[string]any{"spec": fields}
}

// ensure applies an object of the Infra, which becomes the object as applied. Changes that other clients have made to its fields are
// reverted. An object that belongs to another Infra or client is not changed: the error is errForeign.
func (c *Cluster) ensure(ctx context.Context, w *Wanted, wanted *unstructured.Unstructured) error {
	_, err := c.existing(ctx, w, wanted)
	if err != nil {
		return err
	}
	return c.apply(ctx, w, wanted)
}

// existing returns the object with the kind and name of wanted, or nil if it does not exist. The error is errForeign if it does not
// belong to the Infra, and errDeleting if it is being deleted.
func (c *Cluster) existing(ctx context.Context, w *Wanted, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o := object(wanted.GroupVersionKind(), "", "", map[string]any{})
	err := c.client.Get(ctx, client.ObjectKeyFromObject(wanted), o)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", describe(wanted), err)
	case o.GetAnnotations()[v1alpha1.AnnotationInfra] != w.Infra.String():
		return nil, fmt.Errorf("%s %w %s", describe(wanted), errForeign, w.Infra)
	case o.GetDeletionTimestamp() != nil:
		return nil, fmt.Errorf("%s %w", describe(wanted), errDeleting)
	}
	return o, nil
}

// apply applies an object with the label and the annotation by which the Infra owns it.
func (c *Cluster) apply(ctx context.Context, w *Wanted, wanted *unstructured.Unstructured) error {
	what := describe(wanted)
	wanted.SetLabels(labels.Merge(wanted.GetLabels(), labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}))
	wanted.SetAnnotations(labels.Merge(wanted.GetAnnotations(), labels.Set{v1alpha1.AnnotationInfra: w.Infra.String()}))
	if err := c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), fieldManager, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s: %w", what, err)
	}
	return nil
}

// ensureOwn is ensure, but keeps and accepts an object that does not belong to the Infra.
func (c *Cluster) ensureOwn(ctx context.Context, w *Wanted, wanted *unstructured.Unstructured) error {
	if err := c.ensure(ctx, w, wanted); !errors.Is(err, errForeign) {
		return err
	}
	return nil
}

// isManaged reports whether an object was created for an Infra, of any name.
func isManaged(o client.Object) bool { return o.GetAnnotations()[v1alpha1.AnnotationInfra] != "" }

func describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

func (c *Cluster) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.client.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("listing %ss: %w", kind.Kind, err)
	}
	return list.Items, nil
}
