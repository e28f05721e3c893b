package control

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/xdsd/internal/guest"
)

// annotationRenew is when to renew the credentials in the reader's Secret.
const annotationRenew = v1alpha1.GroupName + "/renew"

// ensureReader applies the Secret with the reader's kubeconfig in the Infra's namespace, and returns when to renew
// it.
func (r *hostedReconciler) ensureReader(ctx context.Context, h *guest.Cluster, w *guest.Wanted) (due time.Time, err error) {
	account, err := h.EnsureReader(ctx, w)
	if err != nil {
		return due, err
	}
	key := readerKey(w.Infra)
	secret := &corev1.Secret{}
	if err := client.IgnoreNotFound(r.live.Get(ctx, key, secret)); err != nil {
		return due, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	due, err = time.Parse(time.RFC3339, secret.Annotations[annotationRenew])
	if err == nil && time.Now().Before(due) && h.Accepts(ctx, account, secret.Data[v1alpha1.DefaultKubeconfigKey]) {
		return due, nil
	}
	kubeconfig, due, err := h.NewReader(ctx, w)
	if err != nil {
		return due, err
	}
	// Without an owner reference: pods use it also if the Infra disappears without teardown.
	desired := corev1ac.Secret(key.Name, key.Namespace).WithType(corev1.SecretTypeOpaque).
		WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}).
		WithAnnotations(map[string]string{annotationRenew: due.UTC().Format(time.RFC3339)}).
		WithData(map[string][]byte{v1alpha1.DefaultKubeconfigKey: kubeconfig})
	if err := r.client.Apply(ctx, desired, client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return due, fmt.Errorf("applying Secret %s: %w", key, err)
	}
	r.log.Info("created new credentials for the reader", "infra", w.Infra.String(), "secret", key.String(), "renewal", due)
	return due, nil
}

func readerKey(infra client.ObjectKey) client.ObjectKey {
	return requestOf(model.ReaderSecret(model.Ref{Kind: "Infra", Namespace: infra.Namespace, Name: infra.Name})).NamespacedName
}

// removeReader deletes the Secret with the reader's kubeconfig, if control has created it.
func (r *reconciler) removeReader(ctx context.Context, infra client.ObjectKey) error {
	key := readerKey(infra)
	secret := &corev1.Secret{}
	err := r.live.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err): // setup grants the right only for Infras with appsIngress
		return nil
	case err != nil:
		return fmt.Errorf("reading Secret %s: %w", key, err)
	case secret.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedBy: // created by another client
		return nil
	}
	if err := client.IgnoreNotFound(r.client.Delete(ctx, secret, client.Preconditions{UID: &secret.UID})); err != nil {
		return fmt.Errorf("deleting Secret %s: %w", key, err)
	}
	return nil
}
