package control

import (
	"context"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/internal/model"
)

// secretErrors is a reader that answers every request with an error.
type secretErrors struct {
	client.Reader
	err error
}

func (s secretErrors) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return s.err
}

// TestSweepRetriesUnlessAccessIsMissing checks that a cluster counts as swept only if its kubeconfig does not exist
// or may not be read.
func TestSweepRetriesUnlessAccessIsMissing(t *testing.T) {
	resource := corev1.Resource("secrets")
	for _, tc := range []struct {
		name  string
		err   error
		retry bool
	}{
		{"forbidden", apierrors.NewForbidden(resource, "demo-admin", nil), false},
		{"not found", apierrors.NewNotFound(resource, "demo-admin"), false},
		{"unavailable", apierrors.NewServiceUnavailable("the server is restarting"), true},
		{"timeout", apierrors.NewServerTimeout(resource, "get", 1), true},
		{"deadline", context.DeadlineExceeded, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &hostedReconciler{reconciler: reconciler{live: secretErrors{err: tc.err}, problems: &Problems{}, log: slog.New(slog.DiscardHandler)}}
			err := r.sweep(t.Context(), nil, &model.Cluster{Kubeconfig: "clusters/demo-admin", APIServer: "192.0.2.1:6443"}, &hostedCluster{})
			if retry := err != nil; retry != tc.retry {
				t.Errorf("retry %t, want %t: %v", retry, tc.retry, err)
			}
		})
	}
}
