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
	// operatorPackage is the name of the operator's package in catalogs.
	operatorPackage   = "metallb-operator"
	operatorGroupName = "metallb-operator"
	subscriptionName  = "metallb-operator-sub"
)

var (
	kindOperatorGroup = schema.GroupVersionKind{Group: olmGroup, Version: "v1", Kind: "OperatorGroup"}
	kindSubscription  = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "Subscription"}
	kindInstallPlan   = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "InstallPlan"}
	kindCSV           = schema.GroupVersionKind{Group: olmGroup, Version: "v1alpha1", Kind: "ClusterServiceVersion"}
)

// subscriptionFailures are the conditions of a Subscription that prevent the installation of an operator.
var subscriptionFailures = []string{"ResolutionFailed", "BundleUnpackFailed", "InstallPlanFailed", catalogsUnhealthy}

const catalogsUnhealthy = "CatalogSourcesUnhealthy"

// olmObject has the fields that are read of Subscriptions, InstallPlans and ClusterServiceVersions.
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
		// Phase, Reason and Message are those of InstallPlans and ClusterServiceVersions.
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
	return o, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
}

// ensureOperator applies the objects that install the operator. subscription is the existing Subscription to it, or
// nil.
func (c *Cluster) ensureOperator(ctx context.Context, w *Wanted, subscription *unstructured.Unstructured) *Fault {
	if _, fault := c.ensure(ctx, w, desired(w, kindNamespace, "", metallbNamespace, nil)); fault != nil {
		return fault
	}
	groups, err := c.listKind(ctx, kindOperatorGroup, client.InNamespace(metallbNamespace))
	if err != nil {
		return installFault(err, "listing OperatorGroups")
	}
	// OLM installs nothing in a namespace with two OperatorGroups.
	if !slices.ContainsFunc(groups, func(g unstructured.Unstructured) bool { return !isOurs(&g) }) {
		if _, fault := c.ensure(ctx, w, desired(w, kindOperatorGroup, metallbNamespace, operatorGroupName, map[string]any{})); fault != nil {
			return fault
		}
	}
	if subscription == nil || subscription.GetNamespace() == metallbNamespace && subscription.GetName() == subscriptionName {
		existing, fault := c.ensure(ctx, w, w.subscription())
		switch {
		case fault != nil:
			return fault
		case existing != nil && !isOurs(existing): // a Subscription to another package: findMetalLB returns any Subscription to the operator
			return installFailed("%s exists and does not select %s; delete it", describe(existing), operatorPackage)
		case existing == nil:
			existing = w.subscription()
		}
		subscription = existing
	}
	return c.operatorFault(ctx, subscription)
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
	return desired(w, kindSubscription, metallbNamespace, subscriptionName, spec)
}

// operatorFault returns why the operator of a Subscription does not run, or nil if it runs.
func (c *Cluster) operatorFault(ctx context.Context, subscription *unstructured.Unstructured) *Fault {
	s, err := olmOf(subscription)
	if err != nil {
		return installFailed("reading %s: %v", describe(subscription), err)
	}
	namespace := subscription.GetNamespace()
	seeHint := func(kind schema.GroupVersionKind, name string) string {
		return "see `kubectl -n " + namespace + " describe " + strings.ToLower(kind.Kind) + "." + kind.Group + "/" + name + "` in the hosted cluster"
	}
	// The installed version, and the one to be installed. During an upgrade the first one runs, while the second
	// one may not exist yet.
	var csv *olmObject
	csvName := ""
	for _, name := range slices.Compact([]string{s.Status.InstalledCSV, s.Status.CurrentCSV}) {
		v, err := c.readOLM(ctx, kindCSV, namespace, name)
		switch {
		case err != nil:
			return installFault(err, "reading ClusterServiceVersion "+namespace+"/"+name)
		case v == nil:
			continue
		case v.Status.Phase == "Succeeded":
			return nil
		}
		csv, csvName = v, name
	}
	if csv != nil && csv.Status.Phase == "Failed" {
		return installFailed("ClusterServiceVersion %s/%s failed: %s", namespace, csvName, reasonAndMessage(csv.Status.Reason, csv.Status.Message))
	}
	for _, failure := range subscriptionFailures {
		// Once a version is found, other catalogs no longer matter.
		if i := slices.IndexFunc(s.Status.Conditions, func(c olmCondition) bool { return c.Type == failure && c.Status == corev1.ConditionTrue }); i >= 0 &&
			(failure != catalogsUnhealthy || s.Status.CurrentCSV == "") {
			condition := s.Status.Conditions[i]
			return installFailed("%s: %s: %s", describe(subscription), failure, reasonAndMessage(condition.Reason, condition.Message))
		}
	}
	planName := s.Status.InstallPlanRef.Name
	plan, err := c.readOLM(ctx, kindInstallPlan, namespace, planName)
	switch {
	case err != nil:
		return installFault(err, "reading InstallPlan "+namespace+"/"+planName)
	case plan != nil && plan.Status.Phase == "Failed":
		return installFailed("InstallPlan %s/%s failed: %s", namespace, planName, plan.failureMessage())
	case plan != nil && plan.Spec.Approval == "Manual" && !plan.Spec.Approved:
		return installing("InstallPlan %[1]s/%[2]s waits for approval: `kubectl -n %[1]s patch installplan.%[3]s/%[2]s --type merge -p '{\"spec\":{\"approved\":true}}'` in the hosted cluster",
			namespace, planName, olmGroup)
	case csv != nil:
		return installing("ClusterServiceVersion %s/%s is %s and not Succeeded yet%s; %s", namespace, csvName, cmp.Or(csv.Status.Phase, "new"),
			messageSuffix(csv.Status.Message), seeHint(kindCSV, csvName))
	case plan != nil:
		return installing("InstallPlan %s/%s is %s and not Complete yet; %s", namespace, planName, cmp.Or(plan.Status.Phase, "new"), seeHint(kindInstallPlan, planName))
	case s.Status.CurrentCSV != "":
		return installing("%s found %s, which does not exist yet; %s", describe(subscription), s.Status.CurrentCSV, seeHint(kindSubscription, subscription.GetName()))
	}
	return installing("the Operator Lifecycle Manager looks for %s of %s in channel %s of catalog %s/%s; %s", s.Spec.Name, describe(subscription),
		s.Spec.Channel, s.Spec.SourceNamespace, s.Spec.Source, seeHint(kindSubscription, subscription.GetName()))
}

// failureMessage returns why an InstallPlan failed.
func (o *olmObject) failureMessage() string {
	for _, c := range o.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			return reasonAndMessage(c.Reason, c.Message)
		}
	}
	return o.Status.Message
}

// readOLM returns an object of OLM, or nil if it does not exist or has no name yet.
func (c *Cluster) readOLM(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*olmObject, error) {
	if name == "" {
		return nil, nil
	}
	u := object(kind, "", "")
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, u); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	return olmOf(u)
}
