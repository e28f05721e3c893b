package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"

	"github.com/densityops/oooi/internal/daemon"
	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/test/lab"
)

// TestOutdatedCorefile changes the file of a Corefile that is loaded.
func TestOutdatedCorefile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "Corefile")
	write := func(text string) {
		t.Helper()
		lab.Must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	const loaded, changed = ".:0 {\n bind 127.0.0.1\n}\n", ".:0 {\n bind 127.0.0.1\n any\n}\n"
	write(loaded)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := &corefile{}
	c.observe(at) // before CoreDNS has loaded it
	load := func(text string) {
		t.Helper()
		instance, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(text), Filepath: path, ServerTypeName: "dns"})
		lab.Must(t, err)
		t.Cleanup(func() { stop(t, instance) })
		lab.Must(t, c.load(caddy.InstanceStartupEvent, instance))
	}
	load(loaded)
	expect := func(after time.Duration, want int) {
		t.Helper()
		c.observe(at.Add(after))
		list := c.problems(at.Add(after))
		if len(list) != want {
			t.Errorf("after %s: %+v", after, list)
		}
	}
	expect(0, 0)
	write(changed)
	expect(time.Minute, 0)
	expect(10*time.Minute, 0)
	expect(11*time.Minute, 1)
	write(loaded)
	expect(12*time.Minute, 0)
	write(changed)
	expect(13*time.Minute, 0)
	expect(30*time.Minute, 1)
	load(changed) // as plugin reload does
	expect(31*time.Minute, 0)
}

// TestProblemsAreServed reads /problems and /state of a server whose source of objects disappears.
func TestProblemsAreServed(t *testing.T) {
	p := newProber()
	l, err := daemon.Listen(t.Context(), "127.0.0.1:0")
	lab.Must(t, err)
	at := l.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- p.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		lab.Report(t, <-served)
	})
	dir := manifests(t)
	start(t, ".:0 {\n bind 127.0.0.1\n hcpviews {\n manifests "+dir+"\n }\n}")
	report := func() (r problem.Report) {
		t.Helper()
		status, body := lab.Get(t, "http://"+at+"/problems")
		if err := json.Unmarshal(body, &r); status != 200 || err != nil {
			t.Fatalf("%d, %v: %s", status, err, body)
		}
		return r
	}
	if got := report(); got.Problems == nil || len(got.Problems) > 0 || got.VLAN == nil {
		t.Errorf("at first: %+v", got)
	}
	lab.Must(t, os.Rename(dir, dir+"-moved"))
	lab.Await(t, "a problem without the directory", func() string {
		if got := report(); len(got.Problems) != 1 || got.Problems[0].Code != problem.DataStale || got.Problems[0].Since.IsZero() {
			return fmt.Sprintf("%+v", got)
		}
		return ""
	})
	if status, body := lab.Get(t, "http://"+at+"/state"); status != 200 || !strings.Contains(string(body), `"stores": [`) || !strings.Contains(string(body), string(problem.DataStale)) {
		t.Errorf("/state: %d, %s", status, body)
	}
	if status, body := lab.Get(t, "http://"+at+"/readyz"); status != 200 {
		t.Errorf("/readyz: %d, %s", status, body)
	}
}
