package apiserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/densityops/oooi/test/lab"
)

var management = lab.Shared{Config: lab.Config{Name: "restarting"}}

func TestMain(m *testing.M) { lab.Main(m, &management) }

// newClient returns a client that retries, and calls waiting before it does.
func newClient(t *testing.T, cp *lab.ControlPlane, waiting func(error)) client.Client {
	t.Helper()
	config := cp.RESTConfig()
	config.Wrap(Retry(waiting))
	c, err := client.New(config, client.Options{})
	lab.Must(t, err)
	return c
}

func get(ctx context.Context, c client.Client) error {
	return c.Get(ctx, client.ObjectKey{Name: "default"}, &corev1.Namespace{})
}

// TestRequestsAreRetried kills the API server and starts it again.
func TestRequestsAreRetried(t *testing.T) {
	cp := management.Get(t)
	var messages []string
	c := newClient(t, cp, func(err error) { messages = append(messages, err.Error()) })
	lab.Must(t, get(t.Context(), c))
	lab.Must(t, cp.KillAPIServer())

	// A client that has never been answered does not wait.
	if err := get(t.Context(), newClient(t, cp, func(err error) { t.Error(err) })); err == nil || !strings.HasSuffix(err.Error(), "connection refused") {
		t.Errorf("error of a new client: %v", err)
	}

	// A request ends with its context.
	soon, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := get(soon, c); err == nil || soon.Err() == nil {
		t.Errorf("the request ended with %v, its context with %v", err, soon.Err())
	}

	answer := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), lab.WaitTimeout)
	defer cancel()
	created := &corev1.ConfigMap{}
	created.Namespace, created.Name = "default", "created"
	go func() { answer <- errors.Join(c.Create(ctx, created), get(ctx, c)) }()
	time.Sleep(time.Second)
	lab.Must(t, cp.StartAPIServer(t.Context()))
	if err := <-answer; err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if len(messages) != 1 || !strings.HasPrefix(messages[0], "the API server at 127.0.0.1:") || !strings.HasSuffix(messages[0], "connection refused") {
		t.Errorf("waiting was called with %q, want one error", messages)
	}
}

// responses is an API server with the given responses, as "CODE BODY".
type responses []string

func (r *responses) RoundTrip(request *http.Request) (*http.Response, error) {
	code, body, _ := strings.Cut((*r)[0], " ")
	*r = (*r)[1:]
	status := map[string]int{"200": http.StatusOK, "403": http.StatusForbidden, "500": http.StatusInternalServerError, "503": http.StatusServiceUnavailable}[code]
	return &http.Response{StatusCode: status, Status: code, Body: io.NopCloser(strings.NewReader(body)), Request: request}, nil
}

func TestRetriedResponses(t *testing.T) {
	for response, retried := range map[string]bool{
		"503 ":                      true,
		"500 etcdserver: timed out": true,
		`500 Internal error: failed calling webhook "x": connection refused`: true,
		`500 Internal error: failed calling webhook "x": denied`:             false,
		`403 RBAC: clusterrole.rbac.authorization.k8s.io "x" not found`:      true,
		`403 User "x" cannot list resource`:                                  false,
	} {
		server := responses{"200 ", response, "200 "}
		c := Retry(func(error) {})(&server)
		for range 2 {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com", nil)
			lab.Must(t, err)
			got, err := c.RoundTrip(request)
			lab.Must(t, err)
			body, err := io.ReadAll(got.Body)
			_ = got.Body.Close()
			if err != nil || !retried && len(server) == 1 && !strings.HasSuffix(response, string(body)) {
				t.Errorf("%s: body %q, %v", response, body, err)
			}
		}
		if retried != (len(server) == 0) {
			t.Errorf("%s: %d responses remain", response, len(server))
		}
	}
}
