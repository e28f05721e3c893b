package setup

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/densityops/oooi/kubectl-oooi/internal/read"
)

// TestForbiddenListMayHaveUsers expects objects to be kept if those that may use them cannot be listed.
func TestForbiddenListMayHaveUsers(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("infras"), "", errors.New("no permission"))
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return forbidden
		},
	})
	user, err := firstUser(t.Context(), c, "", "uses it", func(*unstructured.Unstructured) bool { return true }, read.InfraKind)
	if want := "possibly some Infra (listing is forbidden) uses it"; user != want || err != nil {
		t.Errorf("got %q, want %q, error %v", user, want, err)
	}
}
