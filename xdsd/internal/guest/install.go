package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

const (
	olmGroup         = "operators.coreos.com" // of the Operator Lifecycle Manager
	operatorPackage  = "metallb-operator"     // in catalogs; also the name of the OperatorGroup
	subscriptionName = "metallb-operator-sub"
	metallbNamespace = "metallb-system" // of the operator and of MetalLB
	metallbName      = "metallb"        // the only MetalLB object that the operator reconciles
)

// Kinds without Go types in this module's dependencies.
var (
	kindNamespace     = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}
	kindMetalLB       = schema.GroupVersionKind{Group: metallbGroup, Version: "v1beta1", Kind: "MetalLB"}
	kindOperatorGroup = schema.GroupVersionKind{Group: olmGroup, Version: "v1", Kind: "OperatorGroup"}
	kindSubscription  = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "Subscription"}
	kindCSV           = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "ClusterServiceVersion"}
)

// EnsureMetalLB installs MetalLB with the Operator Lifecycle Manager, and applies the pool of the apps address and its
// advertisement. It returns nil if MetalLB is installed, or if the Infra does not request the installation. It does not
// wait: while a step is in progress, it returns a Fault with reason MetalLBMissing that names the step, and must be
// called again. It returns other Faults if a step failed. It uses objects that other clients created, and does not
// change them: if another client has installed MetalLB, it adds only the pool and the advertisement.
func (c *Cluster) EnsureMetalLB(ctx context.Context, w *Wanted) *Fault {
	if !w.Apps.MetalLB.ShouldInstall() {
		return nil
	}
	pools, err := c.listKind(ctx, kindPool)
	served := err == nil
	if err != nil && !isMissing(err) {
		return installFault(err, "looking for MetalLB")
	}
	subscription, err := c.findSubscription(ctx)
	switch foreign := subscription == nil && served || subscription != nil && !isOurs(subscription); {
	case err != nil && !isMissing(err):
		return installFault(err, "looking for MetalLB")
	case foreign && served:
		return c.ensurePool(ctx, w, c.metallbNamespaceOf(ctx, subscription, pools))
	case foreign:
		return cmp.Or(c.operatorFault(ctx, subscription),
			installing("%s, which oooi does not manage, installs the operator, but the API of MetalLB is not served yet", describe(subscription)))
	case err != nil:
		return installFailed("the hosted cluster has no Operator Lifecycle Manager (%s is not served): install it, or install MetalLB manually and "+
			"remove metallb.install", olmGroup)
	}
	if fault := c.ensureOperator(ctx, w, subscription); fault != nil {
		return fault
	}
	spec := map[string]any{}
	if class := w.Apps.MetalLB.LoadBalancerClass; class != "" {
		spec["loadBalancerClass"] = class
	}
	metallb, fault := c.ensure(ctx, w, desired(w, kindMetalLB, metallbNamespace, metallbName, spec))
	if fault == nil {
		fault = c.ensurePool(ctx, w, metallbNamespace)
	}
	return cmp.Or(fault, metallbFault(metallb))
}

// findSubscription returns the Subscription to the operator, preferably the one that oooi created; nil without one. The error is
// isMissing without the Operator Lifecycle Manager.
func (c *Cluster) findSubscription(ctx context.Context) (found *unstructured.Unstructured, err error) {
	list, err := c.listKind(ctx, kindSubscription)
	for i := range list {
		if name, _, _ := unstructured.NestedString(list[i].Object, "spec", "name"); name == operatorPackage && (found == nil || isOurs(&list[i])) {
			found = &list[i]
		}
	}
	return found, err
}

// metallbNamespaceOf returns the namespace of the MetalLB that another client installed, the only one in which it looks for pools.
func (c *Cluster) metallbNamespaceOf(ctx context.Context, subscription *unstructured.Unstructured, pools []unstructured.Unstructured) string {
	metallbs, _ := c.listKind(ctx, kindMetalLB) // not served without the operator
	switch {
	case len(metallbs) > 0:
		return metallbs[0].GetNamespace()
	case subscription != nil:
		return subscription.GetNamespace()
	case len(pools) > 0:
		return pools[0].GetNamespace()
	}
	return metallbNamespace
}

// ensureOperator applies the objects that install the operator. subscription is the existing Subscription to it that oooi created, or
// nil.
func (c *Cluster) ensureOperator(ctx context.Context, w *Wanted, subscription *unstructured.Unstructured) *Fault {
	if _, fault := c.ensure(ctx, w, desired(w, kindNamespace, "", metallbNamespace, nil)); fault != nil {
		return fault
	}
	groups, err := c.listKind(ctx, kindOperatorGroup, client.InNamespace(metallbNamespace))
	if err != nil {
		return installFault(err, "listing OperatorGroups")
	}
	if !slices.ContainsFunc(groups, func(g unstructured.Unstructured) bool { return !isOurs(&g) }) { // OLM installs nothing in a namespace with two
		if _, fault := c.ensure(ctx, w, desired(w, kindOperatorGroup, metallbNamespace, operatorPackage, map[string]any{})); fault != nil {
			return fault
		}
	}
	if subscription == nil || subscription.GetNamespace() == metallbNamespace && subscription.GetName() == subscriptionName {
		wanted := w.subscription()
		existing, fault := c.ensure(ctx, w, wanted)
		switch {
		case fault != nil:
			return fault
		case existing != nil && !isOurs(existing): // a Subscription to another package: findSubscription returns any to the operator
			return installFailed("%s exists and does not select %s; delete it", describe(existing), operatorPackage)
		}
		subscription = cmp.Or(existing, wanted)
	}
	return c.operatorFault(ctx, subscription)
}

func (w *Wanted) subscription() *unstructured.Unstructured {
	olm := cmp.Or(w.Apps.MetalLB.OLM, &v1alpha1.MetalLBOLM{})
	spec := map[string]any{
		"name":            operatorPackage,
		"channel":         cmp.Or(olm.Channel, v1alpha1.DefaultMetalLBChannel),
		"source":          cmp.Or(olm.Source, v1alpha1.DefaultMetalLBSource),
		"sourceNamespace": cmp.Or(olm.SourceNamespace, v1alpha1.DefaultMetalLBSourceNamespace),
	}
	if olm.StartingCSV != "" {
		spec["startingCSV"] = olm.StartingCSV
	}
	return desired(w, kindSubscription, metallbNamespace, subscriptionName, spec)
}

// olmStatus has the fields that are read of Subscriptions, ClusterServiceVersions and MetalLBs.
type olmStatus struct {
	InstalledCSV string `json:"installedCSV"`
	CurrentCSV   string `json:"currentCSV"` // to be installed
	Phase        string `json:"phase"`
	Reason       string `json:"reason"`
	Message      string `json:"message"`
	// Conditions are without the rules of metav1.Condition: OLM's have no generation.
	Conditions []struct {
		Type    string                 `json:"type"`
		Status  corev1.ConditionStatus `json:"status"`
		Reason  string                 `json:"reason"`
		Message string                 `json:"message"`
	} `json:"conditions"`
}

func statusOf(u *unstructured.Unstructured) *olmStatus {
	s := &olmStatus{}
	fields, _, _ := unstructured.NestedMap(u.Object, "status")
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, s) // the CRDs define the types
	return s
}

// condition returns the reason and message of the first of these conditions that is true; empty if none is.
func (s *olmStatus) condition(kinds ...string) string {
	for _, kind := range kinds {
		for _, c := range s.Conditions {
			if c.Type == kind && c.Status == corev1.ConditionTrue {
				return strings.Join(slices.DeleteFunc([]string{kind, c.Reason, c.Message}, func(s string) bool { return s == "" }), ": ")
			}
		}
	}
	return ""
}

// operatorFault returns why the operator of a Subscription does not run, or nil if it runs. During an upgrade the installed version
// runs.
func (c *Cluster) operatorFault(ctx context.Context, subscription *unstructured.Unstructured) *Fault {
	s, namespace := statusOf(subscription), subscription.GetNamespace()
	see := fmt.Sprintf("see `kubectl -n %s describe subscription.%s/%s` in the hosted cluster", namespace, olmGroup, subscription.GetName())
	progress := "the Operator Lifecycle Manager looks for " + operatorPackage
	for _, name := range slices.Compact([]string{s.InstalledCSV, s.CurrentCSV}) {
		csv := object(kindCSV, "", "")
		if err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, csv); name == "" || apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return installFault(err, "reading ClusterServiceVersion "+namespace+"/"+name)
		}
		switch is := statusOf(csv); is.Phase {
		case "Succeeded":
			return nil
		case "Failed":
			return installFailed("%s failed: %s: %s", describe(csv), is.Reason, is.Message)
		default:
			progress = fmt.Sprintf("%s is %s%s", describe(csv), cmp.Or(is.Phase, "new"), messageSuffix(is.Message))
		}
	}
	failures := []string{"ResolutionFailed", "BundleUnpackFailed", "InstallPlanFailed"}
	if s.CurrentCSV == "" { // once a version is found, other catalogs no longer matter
		failures = append(failures, "CatalogSourcesUnhealthy")
	}
	if failed := s.condition(failures...); failed != "" {
		return installFailed("%s: %s", describe(subscription), failed)
	}
	if pending := s.condition("InstallPlanPending"); pending != "" { // RequiresApproval, if the administrator changed it to manual
		progress = pending
	}
	return installing("%s: %s; %s", describe(subscription), progress, see)
}

// metallbFault returns why MetalLB does not run according to its operator, or nil if it runs or the operator has
// not reported yet.
func metallbFault(metallb *unstructured.Unstructured) *Fault {
	if metallb == nil {
		return nil
	}
	s := statusOf(metallb)
	if degraded := s.condition("Degraded"); degraded != "" {
		return installFailed("%s: %s", describe(metallb), degraded)
	}
	if progress := s.condition("Progressing"); progress != "" && s.condition("Available") == "" {
		return installing("%s: %s; see the pods of namespace %s in the hosted cluster", describe(metallb), progress, metallb.GetNamespace())
	}
	return nil
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

func describe(o client.Object) string {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

func (c *Cluster) listKind(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.client.List(ctx, list, options...); err != nil {
		return nil, err
	}
	return list.Items, nil
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
