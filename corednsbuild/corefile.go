package main

import (
	"bytes"
	"os"
	"sync"
	"time"

	"github.com/coredns/caddy"

	"github.com/densityops/oooi/internal/problem"
	"github.com/densityops/oooi/internal/watch"
)

// A corefile compares the Corefile that CoreDNS loaded last with its file. It is safe for concurrent use.
type corefile struct {
	mu       sync.Mutex
	loaded   caddy.Input
	outdated time.Time // since when both differ; zero if they do not
}

// load is a caddy.EventHook, which CoreDNS calls after it has loaded a Corefile.
func (c *corefile) load(event caddy.EventName, info any) error {
	if instance, ok := info.(*caddy.Instance); ok && event == caddy.InstanceStartupEvent {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.loaded = instance.Caddyfile()
	}
	return nil
}

// observe reads the file.
func (c *corefile) observe(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded == nil {
		return
	}
	content, err := os.ReadFile(c.loaded.Path())
	switch {
	case err != nil || bytes.Equal(content, c.loaded.Body()): // the Corefile may not come from a file
		c.outdated = time.Time{}
	case c.outdated.IsZero():
		c.outdated = now
	}
}

// problems returns the problem of a Corefile that was changed and not loaded.
func (c *corefile) problems(now time.Time) []problem.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outdated.IsZero() {
		return nil
	}
	return watch.OutdatedProblems("CoreDNS", c.loaded.Path(), c.outdated, now)
}
