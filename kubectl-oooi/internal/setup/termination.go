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

	"github.com/densityops/oooi/kubectl-oooi/internal/inventory"
)

// checkTermination returns an error if the Infra or standalone ProxyServer is being deleted: everything that setup
// applied would be deleted with it.
func (a *Applier) checkTermination(p *Plan) error {
	at := slices.IndexFunc(p.Objects, p.isOwner)
	if at < 0 {
		return nil
	}
	live := a.live[entryWithoutUID(p.Objects[at])]
	if live == nil || live.GetDeletionTimestamp() == nil {
		return nil
	}
	return fmt.Errorf("%s is being deleted (since %s; finalizers: %s), and the objects of setup with it; wait until it no longer exists, or remove the finalizers, and run setup again",
		inventory.Of(live), live.GetDeletionTimestamp().UTC().Format(time.RFC3339), strings.Join(live.GetFinalizers(), ", "))
}

// checkFinalizers returns an error for each obsolete object with a finalizer of which Kubernetes does not take care, and for each
// pod with a finalizer that a StatefulSet replaces or that ends with an obsolete one: it would not be deleted, and its replacement,
// which has the same name or address, would not start.
func (r *rollout) checkFinalizers(ctx context.Context) error {
	var errs []error
	ending := r.obsolete
	for _, o := range r.objects {
		if live := r.live[entryWithoutUID(o)]; live != nil && len(restarts(live, r.merged[entryWithoutUID(o)])) > 0 {
			ending = append(slices.Clone(ending), live)
		}
	}
	for _, live := range ending {
		if live.GetKind() != "StatefulSet" {
			continue
		}
		pods, err := podsOf(ctx, r.Client, live)
		if err != nil {
			return err
		}
		for i := range pods {
			if pod := &pods[i]; len(pod.Finalizers) > 0 {
				errs = append(errs, fmt.Errorf("Pod %s/%s has the finalizers %s and would not be deleted, so its replacement would not start; remove the finalizers and run setup again", //nolint:staticcheck // a kind begins with a capital
					pod.Namespace, pod.Name, strings.Join(pod.Finalizers, ", ")))
			}
		}
	}
	for _, live := range r.obsolete {
		finalizers := slices.DeleteFunc(live.GetFinalizers(), ofKubernetes)
		if len(finalizers) == 0 {
			continue
		}
		user, err := networkUser(ctx, r.Client, live, r.infra)
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
		errs = append(errs, fmt.Errorf("%s is no longer needed, but has the finalizers %s and would not be deleted; remove the finalizers and run setup again: %s", inventory.Of(live), strings.Join(finalizers, ", "), remove))
	}
	return errors.Join(errs...)
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
