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

// How long a daemon may take for a page, and how long the page may be. That of the control of a
// thousand clusters has some megabytes.
const (
	pagePatience = 5 * time.Second
	longestPage  = 32 << 20
)

// line is a connection to the API server for what is not an object: pages of pods, and reviews of
// access. Requests are not slowed down: it is few of them that are under way at a time.
type line struct {
	client *http.Client
	base   *url.URL
}

func newLine(config *rest.Config) (*line, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion = &corev1.SchemeGroupVersion
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("a client of the API server: %w", err)
	}
	return &line{client, base}, nil
}

// refusal is the API server's own answer in place of what was asked for.
type refusal struct{ metav1.Status }

func (r *refusal) Error() string { return r.Message }

// do makes a request. An error is a *refusal where the API server itself has answered it.
func (l *line) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, l.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("requesting %s: %w", path, err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := l.client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("requesting %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(response.Body, longestPage+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading %s: %w", path, err)
	case len(data) > longestPage:
		return nil, fmt.Errorf("%s is longer than %d bytes", path, longestPage)
	case response.StatusCode < http.StatusMultipleChoices:
		return data, nil
	}
	refused := &refusal{}
	if json.Unmarshal(data, &refused.Status) == nil && refused.Kind == "Status" {
		return nil, refused
	}
	return nil, fmt.Errorf("%s answers %s: %.200s", path, response.Status, strings.TrimSpace(string(data)))
}

// ask asks a pod for one of its pages.
func (l *line) ask(ctx context.Context, pod *corev1.Pod, p page) *Answer {
	a := &Answer{Namespace: pod.Namespace, Pod: pod.Name, Component: p.component, Port: p.port, Path: p.path}
	ctx, cancel := context.WithTimeoutCause(ctx, pagePatience, fmt.Errorf("no answer within %s", pagePatience))
	defer cancel()
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy%s", pod.Namespace, pod.Name, p.port, p.path)
	body, err := l.do(ctx, http.MethodGet, path, nil)
	var refused *refusal
	switch {
	case err == nil:
		a.Body = p.kept(string(body))
	case errors.As(err, &refused) && (refused.Code == http.StatusForbidden || refused.Code == http.StatusUnauthorized):
		a.Refused = refused.Message
	case ctx.Err() != nil:
		a.Silent = context.Cause(ctx).Error()
	default:
		a.Silent = err.Error()
	}
	return a
}
