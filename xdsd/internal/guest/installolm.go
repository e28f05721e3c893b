package guest

import (
	"cmp"
	"context"
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
	// olmGroup is the API group of the Operator Lifecycle Manager.
	olmGroup = "operators.coreos.com"
	// operatorPackage is the operator's name in the catalogs.
	operatorPackage   = "metallb-operator"
	operatorGroupName = "metallb-operator"
	subscriptionName  = "metallb-operator-sub"
)

var (
	kindOperatorGroup = schema.GroupVersionKind{Group: olmGroup, Version: "v1", Kind: "OperatorGroup"}
	kindSubscription  = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "Subscription"}
	kindInstallPlan   = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "InstallPlan"}
	kindVersion       = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "ClusterServiceVersion"}
)

// failures are the conditions of a Subscription that keep an operator from being installed.
var failures = []string{"ResolutionFailed", "BundleUnpackFailed", "InstallPlanFailed", catalogsUnhealthy}

const catalogsUnhealthy = "CatalogSourcesUnhealthy"

// olmObject is what is read of a Subscription, an InstallPlan or a ClusterServiceVersion.
type olmObject struct {
	Spec struct {
		Name            string `json:"name"`
		Channel         string `json:"channel"`
		Source          string `json:"source"`
		SourceNamespace string `json:"sourceNamespace"`

		Approval string `json:"approval"`
		Approved bool   `json:"approved"`
	} `json:"spec"`
	Status struct {
		CurrentCSV     string `json:"currentCSV"`
		InstalledCSV   string `json:"installedCSV"`
		InstallPlanRef struct {
			Name string `json:"name"`
		} `json:"installPlanRef"`
		// Phase, Reason and Message are those of the last two; the first has a reason, too.
		Phase      string         `json:"phase"`
		Reason     string         `json:"reason"`
		Message    string         `json:"message"`
		Conditions []olmCondition `json:"conditions"`
	} `json:"status"`
}

type olmCondition struct {
	Type    string                 `json:"type"`
	Status  corev1.ConditionStatus `json:"status"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
}

func olmOf(u *unstructured.Unstructured) (*olmObject, error) {
	o := &olmObject{}
	return o, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o) //nolint:wrapcheck // the caller knows what was read
}

// ensureOperator has the operator installed. Subscription is the one that there is, nil for
// none.
func (c *Cluster) ensureOperator(ctx context.Context, w *Wanted, subscription *unstructured.Unstructured) *Fault {
	if _, fault := c.ensure(ctx, w, own(w, kindNamespace, "", metallbNamespace, nil)); fault != nil {
		return fault
	}
	groups, err := c.listKind(ctx, kindOperatorGroup, client.InNamespace(metallbNamespace))
	if err != nil {
		return installFault(err, "listing OperatorGroups")
	}
	// Two in a namespace, and OLM installs nothing there.
	if !slices.ContainsFunc(groups, func(g unstructured.Unstructured) bool { return !isOurs(&g) }) {
		if _, fault := c.ensure(ctx, w, own(w, kindOperatorGroup, metallbNamespace, operatorGroupName, map[string]any{})); fault != nil {
			return fault
		}
	}
	if subscription == nil || subscription.GetNamespace() == metallbNamespace && subscription.GetName() == subscriptionName {
		there, fault := c.ensure(ctx, w, w.subscription())
		switch {
		case fault != nil:
			return fault
		case there != nil && !isOurs(there): // else it would have been found
			return installFailed("%s exists and does not select %s; delete it", describe(there), operatorPackage)
		case there == nil:
			there = w.subscription()
		}
		subscription = there
	}
	return c.operator(ctx, subscription)
}

func (w *Wanted) subscription() *unstructured.Unstructured {
	olm := w.Apps.MetalLB.OLM
	if olm == nil {
		olm = &v1alpha1.MetalLBOLM{}
	}
	spec := map[string]any{
		"name":            operatorPackage,
		"channel":         cmp.Or(olm.Channel, v1alpha1.DefaultMetalLBChannel),
		"source":          cmp.Or(olm.Source, v1alpha1.DefaultMetalLBSource),
		"sourceNamespace": cmp.Or(olm.SourceNamespace, v1alpha1.DefaultMetalLBSourceNamespace),
	}
	if olm.StartingCSV != "" {
		spec["startingCSV"] = olm.StartingCSV
	}
	return own(w, kindSubscription, metallbNamespace, subscriptionName, spec)
}

// operator says what keeps a Subscription's operator from running; nil when it runs.
func (c *Cluster) operator(ctx context.Context, subscription *unstructured.Unstructured) *Fault {
	s, err := olmOf(subscription)
	if err != nil {
		return installFailed("reading %s: %v", describe(subscription), err)
	}
	namespace := subscription.GetNamespace()
	see := func(kind schema.GroupVersionKind, name string) string {
		return "see `kubectl -n " + namespace + " describe " + strings.ToLower(kind.Kind) + "." + kind.Group + "/" + name + "` in the hosted cluster"
	}
	// The version that is installed, and the one that is to be: after the first time, one
	// runs while the other is not there yet.
	var version *olmObject
	versionName := ""
	for _, name := range slices.Compact([]string{s.Status.InstalledCSV, s.Status.CurrentCSV}) {
		v, err := c.readOLM(ctx, kindVersion, namespace, name)
		switch {
		case err != nil:
			return installFault(err, "reading ClusterServiceVersion "+namespace+"/"+name)
		case v == nil:
			continue
		case v.Status.Phase == "Succeeded":
			return nil
		}
		version, versionName = v, name
	}
	if version != nil && version.Status.Phase == "Failed" {
		return installFailed("ClusterServiceVersion %s/%s failed: %s", namespace, versionName, because(version.Status.Reason, version.Status.Message))
	}
	for _, failure := range failures {
		// Once a version is found, other catalogs no longer matter.
		if i := slices.IndexFunc(s.Status.Conditions, func(c olmCondition) bool { return c.Type == failure && c.Status == corev1.ConditionTrue }); i >= 0 &&
			(failure != catalogsUnhealthy || s.Status.CurrentCSV == "") {
			said := s.Status.Conditions[i]
			return installFailed("%s: %s: %s", describe(subscription), failure, because(said.Reason, said.Message))
		}
	}
	planName := s.Status.InstallPlanRef.Name
	plan, err := c.readOLM(ctx, kindInstallPlan, namespace, planName)
	switch {
	case err != nil:
		return installFault(err, "reading InstallPlan "+namespace+"/"+planName)
	case plan != nil && plan.Status.Phase == "Failed":
		return installFailed("InstallPlan %s/%s failed: %s", namespace, planName, plan.failure())
	case plan != nil && plan.Spec.Approval == "Manual" && !plan.Spec.Approved:
		return installing("InstallPlan %[1]s/%[2]s waits for approval: `kubectl -n %[1]s patch installplan.%[3]s/%[2]s --type merge -p '{\"spec\":{\"approved\":true}}'` in the hosted cluster",
			namespace, planName, olmGroup)
	case version != nil:
		return installing("ClusterServiceVersion %s/%s is %s and not Succeeded yet%s; %s", namespace, versionName, cmp.Or(version.Status.Phase, "new"),
			quoted(version.Status.Message), see(kindVersion, versionName))
	case plan != nil:
		return installing("InstallPlan %s/%s is %s and not Complete yet; %s", namespace, planName, cmp.Or(plan.Status.Phase, "new"), see(kindInstallPlan, planName))
	case s.Status.CurrentCSV != "":
		return installing("%s found %s, which does not exist yet; %s", describe(subscription), s.Status.CurrentCSV, see(kindSubscription, subscription.GetName()))
	}
	return installing("the Operator Lifecycle Manager looks for %s of %s in channel %s of catalog %s/%s; %s", s.Spec.Name, describe(subscription),
		s.Spec.Channel, s.Spec.SourceNamespace, s.Spec.Source, see(kindSubscription, subscription.GetName()))
}

// failure is why an InstallPlan failed.
func (o *olmObject) failure() string {
	for _, c := range o.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			return because(c.Reason, c.Message)
		}
	}
	return o.Status.Message
}

// readOLM reads an object of OLM's; nil where it is not there, or has no name yet.
func (c *Cluster) readOLM(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*olmObject, error) {
	if name == "" {
		return nil, nil
	}
	u := object(kind, "", "")
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, u); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err //nolint:wrapcheck // the caller looks at what it is
	}
	return olmOf(u)
}
