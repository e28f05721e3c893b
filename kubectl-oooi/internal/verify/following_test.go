package verify

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/kubectl-oooi/internal/site"
)

// TestFollowing asks pods that report that their data is stale, another problem, or nothing.
func TestFollowing(t *testing.T) {
	stale := problem.Warned(problem.DataStale, model.Ref{}, "xdsd does not receive updates from the API server")
	other := problem.Failed(problem.BackendUnreachable, model.Ref{}, "an endpoint refuses connections")
	for name, c := range map[string]struct {
		status   int
		problems []problem.Problem
		follows  bool
		err      string
	}{
		"no problem": {status: http.StatusOK, follows: true}, "stale data": {status: http.StatusOK, problems: []problem.Problem{other, stale}},
		"another problem":                {status: http.StatusOK, problems: []problem.Problem{other}, follows: true},
		"a daemon of an earlier release": {status: http.StatusNotFound, err: "reading the problems of Pod demo-proxy-0: the server returned 404 Not Found"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/pods/demo-proxy-0:9902/proxy/problems") {
					w.WriteHeader(http.StatusNotFound) // the holder
					return
				}
				w.WriteHeader(c.status)
				_ = json.NewEncoder(w).Encode(problem.Report{Problems: c.problems}) // the client may have disconnected
			}))
			defer server.Close()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "clusters", Name: "demo-proxy-0"}, Status: corev1.PodStatus{PodIP: "198.18.0.1"}}
			for _, container := range []string{"envoy", "xdsd", "holder"} {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: container})
			}
			clients, err := site.NewClients(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			following, err := newTest(nil, nil, clients).following(t.Context(), []corev1.Pod{*pod})
			if follows := len(following) == 1; follows != c.follows || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("got %q, %v", following, err)
			}
		})
	}
}
