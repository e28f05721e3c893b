package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Limits of one page. For a thousand clusters, the state page of control has some megabytes.
const (
	pageTimeout = 5 * time.Second
	maxPageSize = 32 << 20
)

// apiClient requests pages of pods and access reviews from the API server. It has no rate limit, since the
// collector limits the number of concurrent requests.
type apiClient struct {
	client *http.Client
	base   *url.URL
}

func newAPIClient(config *rest.Config) (*apiClient, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &corev1.SchemeGroupVersion
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("parsing the API server's address: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return &apiClient{client, base}, nil
}

// statusError is a Status that the API server returned instead of the requested page.
type statusError struct{ metav1.Status }

func (e *statusError) Error() string { return e.Message }

// do sends a request and returns the body. The error is a *statusError if the API server itself rejected the
// request.
func (c *apiClient) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("requesting %s: %w", path, err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("requesting %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(response.Body, maxPageSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the response to %s: %w", path, err)
	case len(data) > maxPageSize:
		return nil, fmt.Errorf("the response to %s is longer than %d bytes", path, maxPageSize)
	case response.StatusCode < http.StatusMultipleChoices:
		return data, nil
	}
	refused := &statusError{}
	if json.Unmarshal(data, &refused.Status) == nil && refused.Kind == "Status" {
		return nil, refused
	}
	return nil, fmt.Errorf("requesting %s: the server returned %s: %.200s", path, response.Status, strings.TrimSpace(string(data)))
}

// getPage requests a page of a pod. A failed request is recorded in the Answer.
func (c *apiClient) getPage(ctx context.Context, pod *corev1.Pod, p page) *Answer {
	a := &Answer{Namespace: pod.Namespace, Pod: pod.Name, Component: p.component, Port: p.port, Path: p.path}
	ctx, cancel := context.WithTimeoutCause(ctx, pageTimeout, fmt.Errorf("no answer within %s", pageTimeout))
	defer cancel()
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy%s", pod.Namespace, pod.Name, p.port, p.path)
	body, err := c.do(ctx, http.MethodGet, path, nil)
	var refused *statusError
	switch {
	case err == nil:
		a.Body = p.prune(string(body))
	case errors.As(err, &refused) && (refused.Code == http.StatusForbidden || refused.Code == http.StatusUnauthorized):
		a.Refused = refused.Message
	case ctx.Err() != nil:
		a.Silent = context.Cause(ctx).Error()
	default:
		a.Silent = err.Error()
	}
	return a
}
