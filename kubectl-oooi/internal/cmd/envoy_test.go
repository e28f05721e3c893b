package cmd

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/densityops/oooi/kubectl-oooi/internal/apiserver"
	"github.com/densityops/oooi/test/lab"
)

// replaceExec replaces execInPod until the end of the test.
func replaceExec(t *testing.T, exec func(path string) ([]byte, error)) {
	t.Helper()
	before := execInPod
	t.Cleanup(func() { execInPod = before })
	execInPod = func(_ context.Context, _ *rest.Config, _ types.NamespacedName, _ string, command []string) ([]byte, error) {
		return exec(command[len(command)-1])
	}
}

// recordedPages replaces Envoy's responses by the files in testdata/envoy, which a real Envoy has printed for site.yaml.
func recordedPages(t *testing.T) {
	t.Helper()
	replaceExec(t, func(path string) ([]byte, error) {
		page, err := url.Parse(path)
		if err != nil {
			return nil, err
		}
		file := filepath.Base(page.Path)
		if resource := page.Query().Get("resource"); resource != "" {
			file = resource
		}
		return os.ReadFile(filepath.Join("testdata", "envoy", file))
	})
}

func envoyErrors(t *testing.T, cp *lab.ControlPlane) {
	fail := func(line, want string) {
		t.Helper()
		out, stderr, code := runMain(t, append([]string{"kubectl-oooi", "--kubeconfig", cp.Kubeconfig(), "-n", "clusters", "envoy"}, strings.Fields(line)...)...)
		if code != 1 || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("envoy %s exited with %d, stdout %q, stderr %q; want 1 and %q", line, code, out, stderr, want)
		}
	}
	fail("listeners demo", "pod demo-proxy-0: ") // the API server does not reach a kubelet

	replaceExec(t, func(string) ([]byte, error) {
		return nil, &apiserver.CommandError{Stderr: `xdsd: unknown command "admin" for "xdsd"`}
	})
	fail("clusters demo", "pod demo-proxy-0: xdsd is older than this command")
	replaceExec(t, func(string) ([]byte, error) {
		return nil, &apiserver.CommandError{Stderr: "xdsd: reading /clusters from Envoy: no response within 5s"}
	})
	fail("clusters demo", "pod demo-proxy-0: reading /clusters from Envoy: no response within 5s")
	replaceExec(t, func(string) ([]byte, error) { return nil, errors.New("refused") })
	fail("config demo", "pod demo-proxy-0: refused")
}
