package page

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/densityops/oooi/internal/model"
	"github.com/densityops/oooi/kubectl-oooi/internal/doctor"
	"github.com/densityops/oooi/kubectl-oooi/internal/output"
	"github.com/densityops/oooi/kubectl-oooi/internal/status"
	"github.com/densityops/oooi/test/golden"
	"github.com/densityops/oooi/test/lab"
)

// browserTimeout limits one test in the browser.
const browserTimeout = 2 * time.Minute

// screenshots is where 'go test -update' writes what the documentation shows.
const screenshots = "../../../docs/images"

// layout returns what is wrong with the layout of a page: text outside of its box, labels on each other or on a box, text
// that contrasts too little with its background (WCAG 2.2, 1.4.3), and a page that is wider than its window.
//
//go:embed testdata/layout.js
var layout string

// A tab is a page in a browser. The browser reads commands from a pipe and writes results and events to another one
// (--remote-debugging-pipe): objects in JSON that end with a zero byte.
type tab struct {
	commands io.Writer
	messages *bufio.Reader
	session  string // empty for commands to the browser
	last     int    // ID of the last command

	loaded   bool
	problems []string // what the browser reported
	requests []string // URLs that it loaded
}

// A message is a result, with the ID of its command, or an event.
type message struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Method string          `json:"method"`
	Params struct {
		Entry   struct{ Text string } `json:"entry"`
		Request struct{ URL string }  `json:"request"`
	} `json:"params"`
}

// open starts a browser and opens a page about sites. The test is skipped without a browser, but fails in CI.
func open(t *testing.T, sites []*Site, width, height int, media map[string]any) *tab {
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
	profile, err := os.MkdirTemp("", "oooi-page-") //nolint:usetesting // removed below
	lab.Must(t, err)
	t.Cleanup(func() { // the browser's other processes end, and stop to write, after the first one
		lab.Poll(t, "the profile to be removed", func() bool { return os.RemoveAll(profile) == nil })
	})
	// Chromium's sandbox does not run as root; the page is our own.
	browser := exec.CommandContext(ctx, program, "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir="+profile)
	in, commands, err1 := os.Pipe()
	messages, out, err2 := os.Pipe()
	browser.ExtraFiles = []*os.File{in, out} // descriptors 3 and 4
	lab.Must(t, errors.Join(err1, err2, browser.Start(), in.Close(), out.Close()))
	p := &tab{commands: commands, messages: bufio.NewReader(messages)}
	t.Cleanup(func() {
		_, _ = io.WriteString(commands, `{"id": 0, "method": "Browser.close"}`+"\x00") // ends its other processes, too
		_, _ = io.Copy(io.Discard, messages)
		_ = commands.Close()
		_ = browser.Wait()
		_ = messages.Close()
	})
	target := call[struct{ TargetID string }](t, p, "Target.createTarget", map[string]any{"url": "about:blank"})
	p.session = call[struct{ SessionID string }](t, p, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}).SessionID
	p.resize(t, width, height)
	for _, domain := range []string{"Log", "Network", "Page"} {
		p.do(t, domain+".enable", nil)
	}
	p.do(t, "Emulation.setEmulatedMedia", media)
	p.do(t, "Page.navigate", map[string]any{"url": server.URL})
	for !p.loaded {
		p.receive(t)
	}
	return p
}

// call performs a command and returns its result.
func call[T any](t *testing.T, p *tab, method string, params map[string]any) (result T) {
	t.Helper()
	p.last++
	command := map[string]any{"id": p.last, "method": method, "params": params}
	if p.session != "" {
		command["sessionId"] = p.session
	}
	text, err := json.Marshal(command)
	lab.Must(t, err)
	if _, err := p.commands.Write(append(text, 0)); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	for {
		m := p.receive(t)
		if m.ID != p.last {
			continue
		}
		if m.Error != nil {
			t.Fatalf("%s: %s", method, m.Error)
		}
		if err := json.Unmarshal(m.Result, &result); err != nil {
			t.Fatalf("%s returned %s: %v", method, m.Result, err)
		}
		return result
	}
}

// receive returns the next message, and records what an event reports.
func (p *tab) receive(t *testing.T) (m message) {
	t.Helper()
	text, err := p.messages.ReadBytes(0)
	if err != nil {
		t.Fatalf("reading from the browser: %v", err)
	}
	if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
		t.Fatalf("the browser sent %s: %v", text, err)
	}
	switch m.Method {
	case "Log.entryAdded":
		p.problems = append(p.problems, m.Params.Entry.Text)
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, m.Params.Request.URL)
	case "Page.loadEventFired":
		p.loaded = true
	}
	return m
}

// do performs a command whose result is not needed.
func (p *tab) do(t *testing.T, method string, params map[string]any) {
	t.Helper()
	call[struct{}](t, p, method, params)
}

func (p *tab) resize(t *testing.T, width, height int) {
	t.Helper()
	p.do(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false})
}

// press presses a key with a virtual key code, which may enter a text.
func (p *tab) press(t *testing.T, key string, code int, text string) {
	t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.do(t, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text})
	}
}

// value returns the value of an expression in JavaScript.
func value[T any](t *testing.T, p *tab, expression string) T {
	t.Helper()
	type evaluation struct {
		Result           struct{ Value T }
		ExceptionDetails json.RawMessage
	}
	e := call[evaluation](t, p, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true})
	if e.ExceptionDetails != nil {
		t.Fatalf("%s: %s", expression, e.ExceptionDetails)
	}
	return e.Result.Value
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
				scheme := map[string]any{"name": "prefers-color-scheme", "value": colours}
				p := open(t, sites, 1280, 1000, map[string]any{"features": []any{scheme}})
				for _, problem := range value[[]string](t, p, layout) {
					t.Error(problem)
				}
				background := value[string](t, p, `getComputedStyle(document.body).backgroundColor`)
				if dark := background != "rgb(255, 255, 255)"; dark != (colours == "dark") {
					t.Errorf("the background is %s", background)
				}
				if shown := name + "-" + colours; golden.Updating() && (shown == "healthy-light" || shown == "broken-dark") {
					size := value[[]int](t, p, `[document.documentElement.scrollWidth, document.documentElement.scrollHeight]`)
					clip := map[string]any{"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
					image := call[struct{ Data []byte }](t, p, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "clip": clip}).Data
					lab.Report(t, os.WriteFile(filepath.Join(screenshots, "site-"+shown+".png"), image, 0o644))
				}
				p.resize(t, 400, 800)
				for _, problem := range value[[]string](t, p, layout) {
					t.Errorf("in the window of a telephone: %s", problem)
				}
				if len(p.problems) > 0 || len(p.requests) != 1 {
					t.Errorf("the browser reports %q and loaded %q", p.problems, p.requests)
				}
			})
		}
	}
}

// TestPageOnPaper expects the content of all elements on paper, also of those that are closed on the screen.
func TestPageOnPaper(t *testing.T) {
	p := open(t, []*Site{site(3, "")}, 1280, 1000, nil)
	const hidden = `!document.querySelector('details td').checkVisibility()`
	if !value[bool](t, p, hidden) {
		t.Error("an element is open on the screen")
	}
	p.do(t, "Emulation.setEmulatedMedia", map[string]any{"media": "print"})
	if value[bool](t, p, hidden) {
		t.Error("the objects of an element are not on paper")
	}
}

// TestPageWithAKeyboard opens an element of the drawing with the keyboard.
func TestPageWithAKeyboard(t *testing.T) {
	p := open(t, []*Site{site(3, "")}, 1280, 1000, nil)
	for range 20 {
		p.press(t, "Tab", 9, "")
		if strings.HasSuffix(value[string](t, p, `document.activeElement.getAttribute('href') || ''`), "-dns") {
			break
		}
	}
	const open = `document.getElementById('site-0-dns').closest('details').open`
	if value[bool](t, p, open) {
		t.Error("the element is open from the start")
	}
	p.press(t, "Enter", 13, "\r")
	if !value[bool](t, p, open) || !strings.Contains(value[string](t, p, `document.querySelector(':target').innerText`), "demo-dns-0") {
		t.Errorf("Enter on the DNS server leads to %s, not to its pods", value[string](t, p, `location.hash`))
	}
}
