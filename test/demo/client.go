package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// A client is a VM or a pod, with a resolver of its own.
type client struct {
	prompt  string   // printed before its commands
	through []string // command that runs a command in the client
	dir     string   // working directory
}

// ask queries a name with dig.
func (c client) ask(ctx context.Context, t *transcript, name string, w want) error {
	t.printf("%s dig %s\n", c.prompt, name)
	_, err := t.answer(ctx, slices.Concat(c.through, []string{"dig", name}), w)
	return err
}

// visit queries the hostname of a URL with dig, and connects to it with curl.
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
	reply, right, err := curl(ctx, c.dir, v.reply, args, c.through...)
	if err != nil {
		return err
	}
	t.verdict(reply, right)
	return nil
}
