//go:build e2e

package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/browser"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// pictures is where 'go test -update' writes what the documentation shows.
const pictures = "../../docs/images"

// testPages opens the pages that 'kubectl oooi test -o html' prints about a healthy site, and about one whose OAuth server does not work.
// With -update, it writes the pictures of the documentation.
func (s *site) testPages(t *testing.T) {
	t.Helper()
	s.page(t, "site-healthy-light", 0, "scenarios passed")
	s.servers["oauth-openshift"].Respond(http.StatusServiceUnavailable)
	defer s.servers["oauth-openshift"].Respond(http.StatusOK)
	s.page(t, "site-broken-dark", 2, "scenarios failed")
}

// page opens the page in a browser, in the colours at the end of the name of its picture, and expects an exit code, and a summary that the
// documentation has as well.
func (s *site) page(t *testing.T, picture string, code int, summary string) {
	t.Helper()
	out := lab.Execute(t, 3*time.Minute, s.binary, "--kubeconfig", s.cp.Kubeconfig(), "-n", "clusters", "test", "demo", "-o", "html")
	if out.Code != code {
		t.Fatalf("exit code %d, want %d: %s", out.Code, code, out.Stderr)
	}
	p := browser.Open(t, out.Stdout, 1280, map[string]string{"prefers-color-scheme": picture[strings.LastIndex(picture, "-")+1:]})
	got := browser.Value[string](t, p, `document.querySelector('.summary').innerText`)
	if docs := string(lab.ReadFile(t, "docs", "how-to", "verify-a-site.md")); !strings.HasSuffix(got, summary) || !strings.Contains(docs, got) {
		t.Errorf("the summary is %q, which docs/how-to/verify-a-site.md does not have", got)
	}
	p.Layout(t)
	if golden.Updating() {
		lab.Must(t, os.WriteFile(filepath.Join(pictures, picture+".png"), p.Screenshot(t), 0o644))
	}
	p.Resize(t, 400)
	p.Layout(t)
}
