package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
)

const (
	operatorPackage  = "metallb-operator" // in catalogs; also the name of the OperatorGroup
	metallbNamespace = "metallb-system"   // of the operator and of MetalLB
	defaultPoolName  = "oooi"             // of the IPAddressPool, if the Infra sets none
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
	namespace, err := c.ensureOperator(ctx, w)
	if err == nil {
		err = c.ensurePool(ctx, w, namespace)
	}
	var fault *Fault
	switch {
	case err == nil, errors.As(err, &fault):
		return fault
	case apierrors.IsNotFound(err), errors.Is(err, errDeleting), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause),
		apierrors.IsInternalError(err): // for example, MetalLB's webhook does not answer yet
		return installing("%v", err)
	}
	if fault = apiFault(err); fault.Reason == v1alpha1.AppsIngressServiceRejected {
		return installFailed("%v", err)
	}
	return fault
}

// installing returns a Fault for an installation in progress.
func installing(format string, args ...any) *Fault {
	return &Fault{v1alpha1.AppsIngressMetalLBMissing, "MetalLB is being installed: " + fmt.Sprintf(format, args...)}
}

func installFailed(format string, args ...any) *Fault {
	return &Fault{v1alpha1.AppsIngressInstallFailed, "MetalLB cannot be installed: " + fmt.Sprintf(format, args...)}
}

// ensureOperator installs the operator and MetalLB, unless another client did. It returns the namespace of MetalLB.
func (c *Cluster) ensureOperator(ctx context.Context, w *Wanted) (namespace string, err error) {
	subscription, missing := c.findSubscription(ctx)
	if missing != nil && !apierrors.IsNotFound(missing) {
		return "", missing
	}
	switch {
	case subscription == nil:
		pools, err := c.list(ctx, kindPool)
		switch {
		case len(pools) > 0: // another client installed MetalLB without a Subscription
			return pools[0].GetNamespace(), nil
		case err == nil:
			return metallbNamespace, nil
		case !apierrors.IsNotFound(err):
			return "", err
		case missing != nil:
			return "", installFailed("the hosted cluster lacks Operator Lifecycle Manager; install it, or install MetalLB and unset metallb.install")
		}
	case !isManaged(subscription):
		return subscription.GetNamespace(), c.checkOperator(ctx, subscription)
	}
	if err := c.subscribe(ctx, w, subscription); err != nil {
		return "", err
	}
	metallb := object(kindMetalLB, metallbNamespace, "metallb", spec(map[string]any{"loadBalancerClass": w.Apps.MetalLB.LoadBalancerClass}))
	if err := c.ensureOwn(ctx, w, metallb); err != nil {
		return "", err
	}
	if degraded := statusOf(metallb).condition("Degraded"); degraded != "" {
		return "", installFailed("%s: %s", describe(metallb), degraded)
	}
	return metallbNamespace, nil
}

// findSubscription returns the Subscription to the operator, preferably the one that oooi created; nil without one.
func (c *Cluster) findSubscription(ctx context.Context) (found *unstructured.Unstructured, err error) {
	list, err := c.list(ctx, kindSubscription)
	for i := range list {
		if name, _, _ := unstructured.NestedString(list[i].Object, "spec", "name"); name == operatorPackage && (found == nil || isManaged(&list[i])) {
			found = &list[i]
		}
	}
	return found, err
}

// subscribe applies the objects that install the operator, and returns nil if it runs. existing is the Subscription of an Infra, or nil.
func (c *Cluster) subscribe(ctx context.Context, w *Wanted, existing *unstructured.Unstructured) error {
	if err := c.ensureOwn(ctx, w, object(kindNamespace, "", metallbNamespace, map[string]any{})); err != nil {
		return err
	}
	groups, err := c.list(ctx, kindOperatorGroup, client.InNamespace(metallbNamespace))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(groups, func(g unstructured.Unstructured) bool { return !isManaged(&g) }) { // OLM installs nothing in a namespace with two
		if err := c.ensureOwn(ctx, w, object(kindOperatorGroup, metallbNamespace, operatorPackage, spec(map[string]any{}))); err != nil {
			return err
		}
	}
	olm := cmp.Or(w.Apps.MetalLB.OLM, &v1alpha1.MetalLBOLM{})
	subscription := object(kindSubscription, metallbNamespace, operatorPackage+"-sub", spec(map[string]any{
		"name":            operatorPackage,
		"channel":         cmp.Or(olm.Channel, v1alpha1.DefaultMetalLBChannel),
		"source":          cmp.Or(olm.Source, v1alpha1.DefaultMetalLBSource),
		"sourceNamespace": cmp.Or(olm.SourceNamespace, v1alpha1.DefaultMetalLBSourceNamespace),
		"startingCSV":     olm.StartingCSV,
	}))
	err = c.ensure(ctx, w, subscription)
	switch foreign := errors.Is(err, errForeign); {
	case foreign && existing == nil: // of another package, because findSubscription returns any to the operator
		return installFailed("%s exists and does not select %s; delete it", describe(subscription), operatorPackage)
	case foreign:
		return c.checkOperator(ctx, existing)
	case err != nil:
		return err
	}
	return c.checkOperator(ctx, subscription)
}

// olmStatus has the fields that are read of Subscriptions, ClusterServiceVersions and MetalLBs.
type olmStatus struct {
	InstalledCSV string             `json:"installedCSV"`
	CurrentCSV   string             `json:"currentCSV"` // to be installed
	Phase        string             `json:"phase"`
	Reason       string             `json:"reason"`
	Message      string             `json:"message"`
	Conditions   []metav1.Condition `json:"conditions"`
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
		if c := meta.FindStatusCondition(s.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
			return strings.Join(slices.DeleteFunc([]string{kind, c.Reason, c.Message}, func(s string) bool { return s == "" }), ": ")
		}
	}
	return ""
}

// checkOperator returns why the operator of a Subscription does not run, or nil if it runs. During an upgrade the installed version
// runs.
func (c *Cluster) checkOperator(ctx context.Context, subscription *unstructured.Unstructured) error {
	s := statusOf(subscription)
	csv := object(kindCSV, subscription.GetNamespace(), cmp.Or(s.InstalledCSV, s.CurrentCSV), map[string]any{})
	err := c.client.Get(ctx, client.ObjectKeyFromObject(csv), csv)
	switch is := statusOf(csv); {
	case csv.GetName() == "", apierrors.IsNotFound(err): // the Subscription has the reason
	case err != nil:
		return fmt.Errorf("reading %s: %w", describe(csv), err)
	case is.Phase == "Succeeded":
		return nil
	case is.Phase == "Failed":
		return installFailed("%s failed: %s: %s", describe(csv), is.Reason, is.Message)
	default:
		return installing("%s is %s%s", describe(csv), cmp.Or(is.Phase, "new"), messageSuffix(is.Message))
	}
	if failed := s.condition("ResolutionFailed", "BundleUnpackFailed", "InstallPlanFailed"); failed != "" {
		return installFailed("%s: %s", describe(subscription), failed)
	}
	// InstallPlanPending has RequiresApproval, if the administrator changed it to manual.
	progress := cmp.Or(s.condition("InstallPlanPending", "CatalogSourcesUnhealthy"), "the Operator Lifecycle Manager looks for "+operatorPackage)
	return installing("%s: %s; see `kubectl -n %s describe subscription.%s/%s` in the hosted cluster",
		describe(subscription), progress, subscription.GetNamespace(), olmGroup, subscription.GetName())
}

// ensurePool applies the pool of the apps address and its advertisement, in the namespace of MetalLB.
func (c *Cluster) ensurePool(ctx context.Context, w *Wanted, namespace string) error {
	m := w.Apps.MetalLB
	pools, err := c.list(ctx, kindPool, client.InNamespace(namespace))
	if err != nil {
		return err
	}
	pool := object(kindPool, namespace, cmp.Or(m.AddressPoolName, defaultPoolName), map[string]any{})
	at := slices.IndexFunc(pools, func(p unstructured.Unstructured) bool { return p.GetName() == pool.GetName() })
	addresses, err := poolAddresses(m.IPAddressPoolRange)
	switch {
	case err != nil:
		return installFailed("metallb.ipAddressPoolRange: %v", err)
	case len(addresses) > 0:
		pool.Object["spec"] = map[string]any{"addresses": addresses}
		if err := c.ensureOwn(ctx, w, pool); err != nil {
			return err
		}
	case at < 0 && m.AddressPoolName == "" && len(pools) > 0:
		return nil // MetalLB chooses an existing pool, whose owner also announces it
	case at < 0:
		return installFailed("%s does not exist, and its addresses are unknown; set metallb.ipAddressPoolRange, or create the pool", describe(pool))
	}
	if at >= 0 {
		pool = &pools[at]
	}
	for _, kind := range []schema.GroupVersionKind{kindL2Advertisement, kindBGPAdvertisement} {
		list, err := c.list(ctx, kind, client.InNamespace(namespace))
		if err != nil {
			return err
		}
		announced := slices.ContainsFunc(list, func(a unstructured.Unstructured) bool { return !isManaged(&a) && announces(&a, pool) })
		if announced && m.L2AdvertisementName == "" {
			return nil
		}
	}
	fields := map[string]any{"ipAddressPools": []any{pool.GetName()}}
	return c.ensureOwn(ctx, w, object(kindL2Advertisement, namespace, cmp.Or(m.L2AdvertisementName, pool.GetName()), spec(fields)))
}

// poolAddresses returns ranges in the format "first-last"; MetalLB does not accept single addresses.
func poolAddresses(ranges *v1alpha1.AddressRanges) ([]any, error) {
	elements, err := ranges.Elements()
	var list []any
	for _, element := range elements {
		r, parseErr := v1alpha1.ParseAddressRange(element)
		if parseErr != nil {
			return nil, parseErr
		}
		list = append(list, fmt.Sprintf("%s-%s", r.First, r.Last))
	}
	return list, err
}
