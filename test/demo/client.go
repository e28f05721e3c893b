package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// client is who asks and connects: a machine or a pod, with a resolver of its own.
type client struct {
	prompt  string
	through []string // runs a command there
	dir     string   // where it runs
}

// ask asks for a name.
func (c client) ask(ctx context.Context, t *transcript, name string, w want) error {
	t.printf("%s dig %s\n", c.prompt, name)
	_, err := t.answer(ctx, slices.Concat(c.through, []string{"dig", name}), w)
	return err
}

// visit asks for a name, and connects by it.
func (c client) visit(ctx context.Context, t *transcript, v visit) error {
	if v.heading != "" {
		t.printf("\n# %s.\n", v.heading)
	}
	u, err := url.Parse(v.url)
	if err != nil {
		return fmt.Errorf("visiting %s: %w", v.url, err)
	}
	if err := c.ask(ctx, t, u.Hostname(), v.dns); err != nil {
		return err
	}
	args := []string{"--cacert", v.trust, v.url}
	t.printf("%s curl %s\n", c.prompt, strings.Join(args, " "))
	said, right, err := curl(ctx, c.dir, v.says, args, c.through...)
	if err != nil {
		return err
	}
	t.verdict(said, right)
	return nil
}
