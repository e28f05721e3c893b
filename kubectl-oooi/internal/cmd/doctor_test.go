package cmd

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

func TestDoctorRejectsInvalidFlags(t *testing.T) {
	for line, want := range map[string]string{
		"doctor --fail-on=maybe":    `invalid argument "maybe" for "--fail-on" flag: want one of: fail, warn, never`,
		"doctor --only OOOI-XYZ":    `unknown name "OOOI-XYZ"`,
		"doctor --save a --from b":  "[from save] were all set",
		"doctor -o nothing":         `--output "nothing"`,
		"doctor --from /there/is/0": "reading the bundle",
	} {
		_, stderr, code := runMain(t, append([]string{"kubectl-oooi"}, strings.Fields(line)...)...)
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s exited with %d, stderr %s", line, code, stderr)
		}
	}
}

func TestChecksAreListed(t *testing.T) {
	for format, has := range map[string]string{
		"json": `"kind": "CheckList"`, "yaml": "kind: CheckList", "name": "check.report.densityops.com/OOOI-API-001", "wide": "READS",
		"jsonpath={.items[0].reads[0]}": "CustomResourceDefinition.apiextensions.k8s.io in everywhere",
	} {
		out, stderr, code := runMain(t, "kubectl-oooi", "doctor", "--list", "-o", format)
		if code != 0 || stderr != "" || !strings.Contains(out, has) {
			t.Errorf("-o %s exited with %d, stderr %q; no %q in %s", format, code, stderr, has, out)
		}
	}
	out, _, _ := runMain(t, "kubectl-oooi", "doctor", "--list", "-o", "json", "--only", "OOOI-HC")
	var list struct{ Items []checkReport }
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if !strings.HasPrefix(c.Metadata.Name, "OOOI-HC-") || c.Title == "" || !strings.HasSuffix(c.Docs, strings.ToLower("#"+c.Metadata.Name)) || len(c.Reads) == 0 {
			t.Errorf("%+v", c)
		}
	}
}

// TestDoctorEndsWithTheTimeout runs doctor against servers that accept connections and do not answer: one that completes no
// TLS handshake, and one that completes it.
func TestDoctorEndsWithTheTimeout(t *testing.T) {
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	hangs := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hangs.Close()
	defer hangs.CloseClientConnections()
	for _, server := range []string{"https://" + silent.Addr().String(), hangs.URL} {
		expectTimeout(t, "the API server at "+server+" did not answer within --timeout 3s", "--server", server, "--insecure-skip-tls-verify")
	}
}

// expectTimeout runs doctor with flags for an API server that does not answer.
func expectTimeout(t *testing.T, want string, flags ...string) {
	t.Helper()
	const timeout = 3 * time.Second
	began := time.Now()
	_, stderr, code := runMain(t, append([]string{"kubectl-oooi", "doctor", "demo", "-n", "clusters", "--timeout", timeout.String()}, flags...)...)
	if code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
	if took := time.Since(began); took > 2*timeout {
		t.Errorf("doctor took %s with --timeout %s", took, timeout)
	}
}

// hungEtcd stops the etcd of an API server, which then accepts requests and does not answer them.
func hungEtcd(t *testing.T, cp *lab.ControlPlane) {
	t.Helper()
	if err := cp.SignalEtcd(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cp.SignalEtcd(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	}()
	expectTimeout(t, "did not answer within --timeout 3s: ", "--kubeconfig", cp.Kubeconfig())
}
