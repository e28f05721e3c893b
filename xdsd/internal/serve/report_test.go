package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/densityops/oooi/api/v1alpha1"
)

func TestEachErrorHasItsRemedy(t *testing.T) {
	const connection = "check the connection to the API server"
	resource := v1alpha1.SchemeGroupVersion.WithResource("proxyservers").GroupResource()
	for _, test := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(resource, "own", errors.New("no")), "grant patch of proxyservers/status"},
		{apierrors.NewUnauthorized("no"), "renew the kubeconfig's credentials; if a ServiceAccount was created again, delete its pods"},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "ProxyServer"}, "own", nil), "apply the CRDs of xdsd's version"},
		{apierrors.NewInternalError(errors.New("failed to create typed patch object: .status.replicas[0].new: field not declared in schema")), "apply the CRDs of xdsd's version"},
		{&url.Error{Op: "Patch", URL: "https://192.0.2.1", Err: io.ErrUnexpectedEOF}, connection},
		{context.DeadlineExceeded, connection},
		{apierrors.NewNotFound(resource, "own"), ""},
		{apierrors.NewTooManyRequests("later", 1), ""},
		{errors.New("json: unsupported type"), ""},
	} {
		if got := remedy(fmt.Errorf("applying the status: %w", test.err)); got != test.want {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
}

func TestLargeReportsAreLessFrequent(t *testing.T) {
	for backends, want := range map[int]time.Duration{0: time.Second, 10: 1040 * time.Millisecond, 1000: 5 * time.Second, 5000: 5 * time.Second} {
		if got := reportInterval(backends); got != want {
			t.Errorf("reports of %d backends have an interval of %s, want %s", backends, got, want)
		}
	}
}
