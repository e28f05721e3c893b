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

// patience is for how long control may take to clean up in a hosted cluster.
const patience = 30 * time.Second

// cleaned waits until control has removed what it made in the hosted cluster of an Infra. The
// reader's Secret goes last.
func cleaned(ctx context.Context, c client.Client, out io.Writer, infra types.NamespacedName) error {
	key := model.ReaderSecret(model.Ref{Kind: "Infra", Namespace: infra.Namespace, Name: infra.Name})
	namespace, name, _ := strings.Cut(key, "/")
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := c.Get(waiting, client.ObjectKey{Namespace: namespace, Name: name}, secret)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case apierrors.IsForbidden(err): // then nobody can tell
			_, err := fmt.Fprintf(out, "reading Secret %s is forbidden; not waiting for the cleanup of the hosted cluster\n", key)
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for control to clean up in the hosted cluster: %w", ctx.Err())
		case <-waiting.Done():
			_, err := fmt.Fprintf(out, "control has not cleaned up the hosted cluster within %s: Service, ServiceAccount and Role of apps ingress may be left there, with label %s=%s\n", patience, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
