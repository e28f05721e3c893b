package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Limits of one page. For a thousand clusters, the state page of control has some megabytes.
const (
	pageTimeout = 5 * time.Second
	maxPageSize = 32 << 20
)

// newClients returns clients for pages of pods and access reviews. They have no rate limit, since the collector limits
// the number of concurrent requests.
func newClients(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedTransport{next} })
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return clients, nil
}

// limitedTransport limits responses, also those with an error, to maxPageSize. Reading more returns an
// *http.MaxBytesError.
type limitedTransport struct{ http.RoundTripper }

func (t limitedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxPageSize)
	}
	return response, err //nolint:wrapcheck // client-go adds the request
}

// getPage requests a page of a pod. A failed request is recorded in the Answer.
func getPage(ctx context.Context, clients *kubernetes.Clientset, pod *corev1.Pod, p page) *Answer {
	a := &Answer{Namespace: pod.Namespace, Pod: pod.Name, Component: p.component, Port: p.port, Path: p.path}
	ctx, cancel := context.WithTimeoutCause(ctx, pageTimeout, fmt.Errorf("no answer within %s", pageTimeout))
	defer cancel()
	var data []byte
	body, err := clients.CoreV1().Pods(pod.Namespace).ProxyGet("", pod.Name, strconv.Itoa(p.port), p.path, nil).Stream(ctx)
	if err == nil {
		defer func() { _ = body.Close() }() // read only
		data, err = io.ReadAll(body)
	}
	var status apierrors.APIStatus
	text, fromPod := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse) // not a Status of the API server
	switch {
	case err == nil:
		a.Body = p.prune(string(data))
	case fromPod && errors.As(err, &status):
		code := status.Status().Code
		a.Silent = fmt.Sprintf("the server returned %d %s: %.200s", code, http.StatusText(int(code)), text.Message)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		a.Refused = err.Error()
	case ctx.Err() != nil:
		a.Silent = context.Cause(ctx).Error()
	case errors.As(err, new(*http.MaxBytesError)):
		a.Silent = fmt.Sprintf("the response is longer than %d bytes", maxPageSize)
	default:
		a.Silent = err.Error()
	}
	return a
}
