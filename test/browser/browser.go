// Package browser opens HTML pages in Chromium.
package browser

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // layout
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// timeout limits how long a page is open.
const timeout = 2 * time.Minute

// layout is an expression that returns what is wrong with the layout of a page: text outside of its box, labels on each other or on a box, text
// that contrasts too little with its background (WCAG 2.2, 1.4.3), and a page that is wider than its window.
//
//go:embed layout.js
var layout string

// A Tab is a page in a browser. The browser reads commands from a pipe and writes results and events to another one
// (--remote-debugging-pipe): objects in JSON that end with a zero byte.
type Tab struct {
	commands io.Writer
	messages *bufio.Reader
	session  string // empty for commands to the browser
	last     int    // ID of the last command

	loaded bool
	// Problems are what the browser reported, and Requests the URLs that it loaded.
	Problems, Requests []string
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

// Open starts a browser and opens a page in a window of a width, with CSS media features. The test is skipped without a browser, but
// fails in CI.
func Open(t *testing.T, page string, width int, features map[string]string) *Tab {
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
			return
		}
		_, _ = io.WriteString(w, page) // the test fails if the browser does not load it
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
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
	p := &Tab{commands: commands, messages: bufio.NewReader(messages)}
	t.Cleanup(func() {
		_, _ = commands.WriteString(`{"id": 0, "method": "Browser.close"}` + "\x00") // ends its other processes, too
		_, _ = io.Copy(io.Discard, messages)
		_ = commands.Close()
		_ = browser.Wait()
		_ = messages.Close()
	})
	target := call[struct{ TargetID string }](t, p, "Target.createTarget", map[string]any{"url": "about:blank"})
	p.session = call[struct{ SessionID string }](t, p, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}).SessionID
	p.Resize(t, width)
	for _, domain := range []string{"Log", "Network", "Page"} {
		p.Do(t, domain+".enable", nil)
	}
	list := []any{}
	for name, value := range features {
		list = append(list, map[string]any{"name": name, "value": value})
	}
	p.Do(t, "Emulation.setEmulatedMedia", map[string]any{"features": list})
	p.Do(t, "Page.navigate", map[string]any{"url": server.URL})
	for !p.loaded {
		p.receive(t)
	}
	return p
}

// call performs a command and returns its result.
func call[T any](t *testing.T, p *Tab, method string, params map[string]any) (result T) {
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
func (p *Tab) receive(t *testing.T) (m message) {
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
		p.Problems = append(p.Problems, m.Params.Entry.Text)
	case "Network.requestWillBeSent":
		p.Requests = append(p.Requests, m.Params.Request.URL)
	case "Page.loadEventFired":
		p.loaded = true
	}
	return m
}

// Do performs a command whose result is not needed.
func (p *Tab) Do(t *testing.T, method string, params map[string]any) {
	t.Helper()
	call[struct{}](t, p, method, params)
}

// Resize changes the size of the window.
func (p *Tab) Resize(t *testing.T, width int) {
	t.Helper()
	p.Do(t, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": false})
}

// Press presses a key with a virtual key code, which may enter a text.
func (p *Tab) Press(t *testing.T, key string, code int, text string) {
	t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		p.Do(t, "Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text})
	}
}

// Value returns the value of an expression in JavaScript.
func Value[T any](t *testing.T, p *Tab, expression string) T {
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

// Layout fails the test for each problem of the layout.
func (p *Tab) Layout(t *testing.T) {
	t.Helper()
	for _, problem := range Value[[]string](t, p, layout) {
		t.Error(problem)
	}
}

// Screenshot returns an image of the whole page, in PNG.
func (p *Tab) Screenshot(t *testing.T) []byte {
	t.Helper()
	size := Value[[]int](t, p, `[window.innerWidth, document.body.offsetHeight]`)
	clip := map[string]any{"x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1}
	return call[struct{ Data []byte }](t, p, "Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "clip": clip}).Data
}
