package setup

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/internal/model"
)

// cleanupTimeout is how long setup waits for control to clean up in a hosted cluster.
const cleanupTimeout = 30 * time.Second

// waitForCleanup waits until control has deleted the objects of apps ingress in the hosted cluster. The Secret with the
// reader's kubeconfig is deleted last. It reports whether control has deleted the Secret: after cleanupTimeout, it deletes the
// Secret itself. Then, or if reading Secrets is forbidden, it prints what may be left, and returns false without an error.
func waitForCleanup(ctx context.Context, c client.Client, out io.Writer, infra types.NamespacedName) (bool, error) {
	key := model.ReaderSecret(model.Ref{Kind: "Infra", Namespace: infra.Namespace, Name: infra.Name})
	namespace, name, _ := strings.Cut(key, "/")
	waiting, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	for {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := c.Get(waiting, client.ObjectKey{Namespace: namespace, Name: name}, secret)
		switch {
		case apierrors.IsNotFound(err):
			return true, nil
		case apierrors.IsForbidden(err):
			_, err := fmt.Fprintf(out, "reading Secret %s is forbidden; not waiting for control to clean up in the hosted cluster\n", key)
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("waiting for control to clean up in the hosted cluster: %w", contextError(ctx))
		case <-waiting.Done():
			if ctx.Err() != nil {
				continue // both contexts have ended
			}
			if secret.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy {
				if err := client.IgnoreNotFound(c.Delete(ctx, secret)); err != nil && !apierrors.IsForbidden(err) {
					return false, fmt.Errorf("deleting Secret %s: %w", key, err)
				}
			}
			_, err := fmt.Fprintf(out, "control has not cleaned up the hosted cluster within %s: the Service, ServiceAccount, Role and RoleBinding of apps ingress may remain there, with label %s=%s; delete them\n", cleanupTimeout, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
			return false, err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
