package page

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
	"github.com/densityops/oooi/test/golden"
)

// browserTimeout limits one test in the browser.
const browserTimeout = 2 * time.Minute

// screenshots is where 'go test -update' writes what the documentation shows.
const screenshots = "../../../docs/images"

// layout returns what is wrong with the layout of a page: text outside of its box, labels on each other or on a box, text
// that contrasts too little with its background (WCAG 2.2, 1.4.3), and a page that is wider than its window.
const layout = `(() => {
  const problems = [];
  const inside = (a, b) => a.left >= b.left && a.right <= b.right && a.top >= b.top && a.bottom <= b.bottom;
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const boxes = [...document.querySelectorAll('svg rect')].map(e => e.getBoundingClientRect());
  for (const box of document.querySelectorAll('svg a'))
    for (const text of box.querySelectorAll('text'))
      if (!inside(text.getBoundingClientRect(), box.querySelector('rect').getBoundingClientRect()))
        problems.push('text outside of its box: ' + text.textContent);
  const labels = [...document.querySelectorAll('svg .label')];
  labels.forEach((label, i) => {
    const at = label.getBoundingClientRect();
    if (boxes.some(box => !apart(at, box))) problems.push('label on a box: ' + label.textContent);
    if (labels.slice(i + 1).some(other => !apart(at, other.getBoundingClientRect()))) problems.push('label on another: ' + label.textContent);
  });
  const luminance = colour => {
    const part = colour.match(/[0-9.]+/g).slice(0, 3).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const contrast = (a, b) => { const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
  const back = getComputedStyle(document.body).backgroundColor;
  for (const e of document.querySelectorAll('h1, h2, h3, p, nav a, td, th, summary, span, svg text')) {
    const svg = e.closest('svg'), style = getComputedStyle(e);
    const behind = svg && !e.classList.contains('label') ? getComputedStyle(e.closest('a').querySelector('rect')).fill : back;
    const ratio = contrast(svg ? style.fill : style.color, behind);
    if (ratio < 4.5) problems.push('contrast ' + ratio.toFixed(1) + ': ' + e.textContent);
  }
  if (document.documentElement.scrollWidth > window.innerWidth) problems.push('the page is ' + document.documentElement.scrollWidth + ' wide');
  return problems;
})()`

// A tab is a page in a browser.
type tab struct {
	context.Context

	mu       sync.Mutex
	problems []string // what the browser reported
	requests []string // URLs that it loaded
}

// open starts a browser and opens a page about sites. The test is skipped without a browser, but fails in CI.
func open(t *testing.T, sites []*Site, width, height int64, media emulation.SetEmulatedMediaParams) *tab {
	t.Helper()
	program, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("the Debian package chromium-headless-shell is not installed")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
		} else if err := HTML(w, sites, "v0.3.0", time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), browserTimeout)
	t.Cleanup(cancel)
	// Chromium's sandbox does not run as root; the page is our own.
	ctx, cancel = chromedp.NewExecAllocator(ctx, chromedp.Headless, chromedp.ExecPath(program), chromedp.NoSandbox)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	p := &tab{Context: ctx}
	p.do(t, chromedp.EmulateViewport(width, height))
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	call(t, p, log.Enable, cdp.Empty{})
	call(t, p, network.Enable, network.EnableParams{})
	call(t, p, emulation.SetEmulatedMedia, media)
	p.do(t, chromedp.Navigate(server.URL))
	return p
}

func (p *tab) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		p.problems = append(p.problems, e.Entry.Text)
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	}
}

func (p *tab) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(p, actions...); err != nil {
		t.Fatal(err)
	}
}

func call[P, R any](t *testing.T, p *tab, command cdp.Command[P, R], params P) {
	t.Helper()
	if _, err := chromedp.Call(p, command, params); err != nil {
		t.Fatal(err)
	}
}

func run[T any](t *testing.T, p *tab, action chromedp.Action[T]) T {
	t.Helper()
	result, err := chromedp.Run(p, action)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// value returns the value of an expression in JavaScript.
func value[T any](t *testing.T, p *tab, expression string) T {
	t.Helper()
	return run(t, p, chromedp.Evaluate[T](expression))
}

// documented returns the site of the documentation's screenshots, whose components are ready.
func documented(broken string) *Site {
	s := site(12, broken)
	for i, l := range s.Leases {
		l.Hostname = fmt.Sprintf("worker-%d", i)
		l.VM = "clusters-demo/" + l.Hostname
	}
	s.Status.Components[1].Ready, s.Status.Components[1].Pods[0] = metav1.ConditionTrue, status.Pod{Name: "demo-dns-0", Ready: true, Node: "node-b"}
	return s
}

// brokenSite returns a site in which a scenario and a check fail.
func brokenSite() *Site {
	s := documented("tls-oauth")
	s.Diagnosis = &doctor.Diagnosis{Metadata: output.Metadata{Name: "demo", Namespace: "clusters"}, Summary: map[output.Result]int{output.Failed: 1}, Results: []doctor.Result{{
		Code: "OOOI-PRX-005", Status: output.Failed, Findings: []doctor.Finding{{
			Object: model.Ref{Kind: "Service", Namespace: "clusters-demo", Name: "oauth-openshift"}, Message: "none of its endpoints is ready", Remedy: "see why the pods of the Service are not ready: kubectl get pods -n clusters-demo -l app=oauth-openshift",
			Evidence: []string{"EndpointSlice clusters-demo/oauth-openshift-x7d2p: 0 of 1 endpoints are ready"},
		}},
	}}}
	return s
}

// TestPageInABrowser opens pages in light and dark colours and in a small window, and with -update writes the screenshots
// of the documentation.
func TestPageInABrowser(t *testing.T) {
	for name, sites := range map[string][]*Site{"healthy": {documented("")}, "broken": {brokenSite()}, "large": {site(200, ""), site(3, "dns-pod-tcp"), site(0, "none")}} {
		for _, colours := range []string{"light", "dark"} {
			t.Run(name+"-"+colours, func(t *testing.T) {
				scheme := &emulation.MediaFeature{Name: "prefers-color-scheme", Value: colours}
				p := open(t, sites, 1280, 1000, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{scheme}})
				for _, problem := range value[[]string](t, p, layout) {
					t.Error(problem)
				}
				background := value[string](t, p, `getComputedStyle(document.body).backgroundColor`)
				if dark := background != "rgb(255, 255, 255)"; dark != (colours == "dark") {
					t.Errorf("the background is %s", background)
				}
				if shown := name + "-" + colours; golden.Updating() && (shown == "healthy-light" || shown == "broken-dark") {
					image := run(t, p, chromedp.FullScreenshot(100))
					if err := os.WriteFile(filepath.Join(screenshots, "site-"+shown+".png"), image, 0o644); err != nil {
						t.Error(err)
					}
				}
				p.do(t, chromedp.EmulateViewport(400, 800))
				for _, problem := range value[[]string](t, p, layout) {
					t.Errorf("in the window of a telephone: %s", problem)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				if len(p.problems) > 0 || len(p.requests) != 1 {
					t.Errorf("the browser reports %q and loaded %q", p.problems, p.requests)
				}
			})
		}
	}
}

// TestPageOnPaper expects the content of all elements on paper, also of those that are closed on the screen.
func TestPageOnPaper(t *testing.T) {
	p := open(t, []*Site{site(3, "")}, 1280, 1000, emulation.SetEmulatedMediaParams{})
	const hidden = `!document.querySelector('details td').checkVisibility()`
	if !value[bool](t, p, hidden) {
		t.Error("an element is open on the screen")
	}
	call(t, p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	if value[bool](t, p, hidden) {
		t.Error("the objects of an element are not on paper")
	}
}

// TestPageWithAKeyboard opens an element of the drawing with the keyboard.
func TestPageWithAKeyboard(t *testing.T) {
	p := open(t, []*Site{site(3, "")}, 1280, 1000, emulation.SetEmulatedMediaParams{})
	for range 20 {
		p.do(t, chromedp.KeyEvent(kb.Tab))
		if strings.HasSuffix(value[string](t, p, `document.activeElement.getAttribute('href') || ''`), "-dns") {
			break
		}
	}
	const open = `document.getElementById('site-0-dns').closest('details').open`
	if value[bool](t, p, open) {
		t.Error("the element is open from the start")
	}
	p.do(t, chromedp.KeyEvent(kb.Enter))
	if !value[bool](t, p, open) || !strings.Contains(value[string](t, p, `document.querySelector(':target').innerText`), "demo-dns-0") {
		t.Errorf("Enter on the DNS server leads to %s, not to its pods", value[string](t, p, `location.hash`))
	}
}
