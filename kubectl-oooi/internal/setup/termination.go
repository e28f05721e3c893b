package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// checkTermination returns an error if the Infra or standalone ProxyServer is being deleted: everything that setup
// applied would be deleted with it.
func (a *Applier) checkTermination(ctx context.Context, p *Plan) error {
	at := slices.IndexFunc(p.Objects, p.isOwner)
	if at < 0 {
		return nil
	}
	live, err := current(ctx, a.Client, p.Objects[at])
	if err != nil || live == nil || live.GetDeletionTimestamp() == nil {
		return err
	}
	return fmt.Errorf("%s is being deleted (since %s; finalizers: %s), and the objects of setup with it; wait until it no longer exists, or remove the finalizers, and run setup again\nnothing was applied",
		inventory.Of(live), live.GetDeletionTimestamp().UTC().Format(time.RFC3339), strings.Join(live.GetFinalizers(), ", "))
}

// checkFinalizers returns an error for each obsolete object that would not be deleted: one with a finalizer of which
// Kubernetes does not take care, or a StatefulSet with such a pod. A StatefulSet keeps its addresses until it no longer
// exists, so setup waits for it while its component is down.
func (a *Applier) checkFinalizers(ctx context.Context, p *Plan, obsolete []inventory.Entry) error {
	var errs []error
	for _, e := range obsolete {
		live, err := current(ctx, a.Client, e.Object())
		if err != nil {
			return err
		}
		if live == nil || !e.Identifies(live) {
			continue
		}
		if e.Kind == "StatefulSet" {
			pods, err := podsOf(ctx, a.Client, live)
			if err != nil {
				return err
			}
			for i := range pods {
				errs = append(errs, deletable(&pods[i]))
			}
		}
		finalizers := slices.DeleteFunc(live.GetFinalizers(), ofKubernetes)
		if len(finalizers) == 0 {
			continue
		}
		user, err := networkUser(ctx, a.Client, e, client.ObjectKeyFromObject(p.Infra))
		if err != nil {
			return err
		}
		if user != "" {
			continue // it is kept
		}
		remove, err := removeFinalizers(live)
		if err != nil {
			return err
		}
		errs = append(errs, fmt.Errorf("%s is no longer needed, but has the finalizers %s and would not be deleted; remove the finalizers and run setup again: %s", e, strings.Join(finalizers, ", "), remove))
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, a.notApplied())
	}
	return nil
}

// ofKubernetes reports whether a finalizer is one that Kubernetes removes when it deletes the object.
func ofKubernetes(finalizer string) bool {
	domain, _, _ := strings.Cut(finalizer, "/")
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents ||
		domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
}

// removeFinalizers returns the command that removes the finalizers of an object, except those of Kubernetes.
func removeFinalizers(o *unstructured.Unstructured) (string, error) {
	kept := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return !ofKubernetes(f) })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": kept}})
	if err != nil {
		return "", fmt.Errorf("encoding the finalizers of %s: %w", inventory.Of(o), err)
	}
	namespace := ""
	if o.GetNamespace() != "" {
		namespace = "-n " + o.GetNamespace() + " "
	}
	return fmt.Sprintf("kubectl %spatch %s %s --type=merge -p '%s'", namespace, strings.ToLower(o.GetKind()), o.GetName(), patch), nil
}
