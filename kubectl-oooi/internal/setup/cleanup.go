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
// reader's kubeconfig is deleted last. After cleanupTimeout it prints what may be left, and returns no error.
func waitForCleanup(ctx context.Context, c client.Client, out io.Writer, infra types.NamespacedName) error {
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
			return nil
		case apierrors.IsForbidden(err):
			_, err := fmt.Fprintf(out, "reading Secret %s is forbidden; not waiting for the cleanup of the hosted cluster\n", key)
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for control to clean up in the hosted cluster: %w", ctx.Err())
		case <-waiting.Done():
			_, err := fmt.Fprintf(out, "control has not cleaned up the hosted cluster within %s: Service, ServiceAccount and Role of apps ingress may be left there, with label %s=%s\n", cleanupTimeout, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
