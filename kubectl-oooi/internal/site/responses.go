package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
)

// Limits of one response. For a thousand Infras, control's report has several megabytes.
const (
	responseTimeout = 5 * time.Second
	maxResponseSize = 16 << 20
)

// responseKey identifies a container.
type responseKey struct{ Namespace, Pod, Container string }

// Response is a daemon's response to GET /problems.
type Response struct {
	Namespace string          `json:"namespace"`
	Pod       string          `json:"pod"`
	Container string          `json:"container"`
	Report    *problem.Report `json:"report,omitempty"` // nil unless Refused and Silent are empty
	// Refused is why the API server does not allow the request. Silent is why it failed otherwise.
	Refused string `json:"refused,omitempty"`
	Silent  string `json:"silent,omitempty"`
}

// PodRef returns a reference to the pod.
func (a *Response) PodRef() model.Ref {
	return model.Ref{Kind: Pods.Kind, Namespace: a.Namespace, Name: a.Pod}
}

// problemPorts are the ports for /problems, by container.
var problemPorts = map[string]int{"coredns": 9908, "coredhcp": 9903, "xdsd": 9902, "holder": 9906, ComponentControl: 9904}

// daemonsOf returns the containers of a pod that serve /problems.
func daemonsOf(p *corev1.Pod) []string {
	var list []string
	for i := range p.Spec.Containers {
		if name := p.Spec.Containers[i].Name; problemPorts[name] != 0 && p.Status.PodIP != "" && p.DeletionTimestamp == nil {
			list = append(list, name)
		}
	}
	return list
}

// servingPods returns the site's or control's pods that serve /problems.
func (s *Site) servingPods(where Where) []*corev1.Pod {
	if where == AtSystem {
		return s.ControlPods()
	}
	return slices.DeleteFunc(All[corev1.Pod](s, Pods, where), func(p *corev1.Pod) bool { return !s.Owns(p.Labels) })
}

// Responses returns the responses of the site's daemons, or of control.
func (s *Site) Responses(where Where) []*Response {
	var list []*Response
	for _, p := range s.servingPods(where) {
		for _, container := range daemonsOf(p) {
			if a := s.Facts.responses[responseKey{p.Namespace, p.Name, container}]; a != nil {
				list = append(list, a)
			}
		}
	}
	return list
}

// NewClients returns clients for requests to pods and for their logs. The clients have no rate limit, since the collector limits
// concurrent requests. They limit responses to maxResponseSize.
func NewClients(config *rest.Config) (*kubernetes.Clientset, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedTransport{next} })
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return clients, nil
}

// limitedTransport limits the size of responses, including errors. Reading more returns an *http.MaxBytesError.
type limitedTransport struct{ http.RoundTripper }

func (t limitedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Body = http.MaxBytesReader(nil, response.Body, maxResponseSize)
	}
	return response, err
}

// requestProblems requests /problems from a container. The Response records a failed request.
func requestProblems(ctx context.Context, clients *kubernetes.Clientset, key responseKey) *Response {
	a := &Response{Namespace: key.Namespace, Pod: key.Pod, Container: key.Container}
	report := &problem.Report{}
	switch err := GetJSON(ctx, clients, key.Namespace, key.Pod, key.Container, "/problems", report); {
	case err == nil:
		a.Report = report
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		a.Refused = err.Error()
	default:
		a.Silent = err.Error()
	}
	return a
}

// GetJSON requests an HTTP path from a container's daemon, through the API server, and decodes the response into a value.
func GetJSON(ctx context.Context, clients *kubernetes.Clientset, namespace, pod, container, path string, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, responseTimeout, fmt.Errorf("no response within %s", responseTimeout))
	defer cancel()
	body, err := clients.CoreV1().Pods(namespace).ProxyGet("", pod, strconv.Itoa(problemPorts[container]), path, nil).Stream(ctx)
	if err == nil {
		defer func() { _ = body.Close() }() // read only
		if err = json.NewDecoder(body).Decode(into); err == nil {
			return nil
		}
	}
	var status apierrors.APIStatus
	text, fromPod := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse) // not a Status from the API server
	switch {
	case fromPod && apierrors.IsNotFound(err):
		return fmt.Errorf("container %s does not serve %s: its image is older than kubectl oooi; run 'kubectl oooi setup -f FILE' to update it", container, path)
	case fromPod && errors.As(err, &status):
		code := int(status.Status().Code)
		return fmt.Errorf("the server returned %d %s: %.200s", code, http.StatusText(code), text.Message)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return err
	}
}

// Limits of a log.
const (
	logLines = 5
	logBytes = 8 << 10
	lineSize = 300
)

// logKey identifies the log of a container.
type logKey struct{ Namespace, Pod, Container string }

// Log has the last lines of the log of a container that terminated with an error.
type Log struct {
	Namespace string   `json:"namespace"`
	Pod       string   `json:"pod"`
	Container string   `json:"container"`
	Lines     []string `json:"lines"`
}

// Log returns the last lines of the log of a crashed container; nil if they were not read.
func (s *Site) Log(p *corev1.Pod, container string) []string {
	if l := s.Facts.logs[logKey{p.Namespace, p.Name, container}]; l != nil {
		return l.Lines
	}
	return nil
}

// crashed returns the containers of a pod that terminated with an error, and whether each has restarted since.
func crashed(p *corev1.Pod) map[string]bool {
	list := map[string]bool{}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch last := c.LastTerminationState.Terminated; {
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			list[c.Name] = false
		case last != nil && last.ExitCode != 0 && !c.Ready:
			list[c.Name] = true
		}
	}
	return list
}

// readLog requests the last lines of a crashed container's log; nil if the user cannot read it.
func readLog(ctx context.Context, clients *kubernetes.Clientset, key logKey, previous bool) *Log {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	options := &corev1.PodLogOptions{Container: key.Container, Previous: previous, TailLines: new(int64(logLines)), LimitBytes: new(int64(logBytes))}
	l := &Log{Namespace: key.Namespace, Pod: key.Pod, Container: key.Container}
	stream, err := clients.CoreV1().Pods(key.Namespace).GetLogs(key.Pod, options).Stream(ctx)
	if err != nil {
		return l
	}
	defer func() { _ = stream.Close() }() // read only
	text, _ := io.ReadAll(stream)         // a part is sufficient
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); len(line) > lineSize { // the end of a wrapped error is its cause
			line = strings.ToValidUTF8(line[:lineSize/3], "") + "[...]" + strings.ToValidUTF8(line[len(line)-lineSize*2/3:], "")
		}
		if line != "" {
			l.Lines = append(l.Lines, line)
		}
	}
	return l
}
