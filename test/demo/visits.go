package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A visit resolves the hostname of a URL and connects to it, with the expected results of both.
type visit struct {
	heading string
	source  string // address of the client; empty for a client with a single address
	url     string
	trust   string // file with the certificate of the server or its CA; empty for plain HTTP
	dns     want
	reply   string // expected prefix of a line of the reply
}

// showProxy connects through the proxy as VMs and as pods.
func (t *transcript) showProxy(ctx context.Context, c *clusters, p *proxy) error {
	service := inNetwork("127.96.0.0/16")
	for _, v := range []visit{
		{"A VM connects by name to the API server of the hosted cluster, and verifies its certificate", demoVM, "https://api.demo.lab.example.com:6443/version", "api.crt", only(vlanIP), `"gitVersion": "v`},
		{"The OAuth server, by its control-plane name and by its name in the apps domain", demoVM, "https://oauth.demo.lab.example.com/", "oauth.crt", only(vlanIP), "oauth-openshift-1: request for oauth.demo.lab.example.com"},
		{"", demoVM, "https://oauth-openshift.apps.demo.lab.example.com/", "oauth.crt", only(vlanIP), "oauth-openshift-1: request for oauth-openshift.apps.demo.lab.example.com"},
		{"A pod connects to apps; the proxy connects to them from its VLAN address", pod, "https://" + shopName + "/", "shop.crt", service, "shop: request for " + shopName + " from " + vlanIP},
		{"", pod, "https://" + cartName + "/", "cart.crt", service, "cart: request for " + cartName + " from " + vlanIP},
		{"", pod, "http://" + shopName + "/", "", service, "shop: request for " + shopName + " from " + vlanIP},
		{"", pod, "http://" + cartName + "/", "", service, "cart: request for " + cartName + " from " + vlanIP},
		{"", pod, "https://api.demo.lab.example.com:6443/version", "api.crt", service, `"gitVersion": "v`},
	} {
		if v.heading != "" {
			t.printf("\n# %s.\n", v.heading)
		}
		if err := t.visit(ctx, p, v); err != nil {
			return err
		}
	}
	t.printf("\n# VMs reach apps without the proxy, but the proxy accepts their connections, too.\n")
	for _, v := range []visit{
		{"", demoVM, "https://" + shopName + "/", "shop.crt", want{}, "shop: request for " + shopName + " from " + vlanIP},
		{"", demoVM, "http://" + shopName + "/", "", want{}, "shop: request for " + shopName + " from " + vlanIP},
	} {
		if err := t.curl(ctx, p, v, vlanIP); err != nil {
			return err
		}
	}
	return t.showSwap(ctx, c, p)
}

// visit resolves the name with dig, and connects to the address in the answer with curl.
func (t *transcript) visit(ctx context.Context, p *proxy, v visit) error {
	u, err := url.Parse(v.url)
	if err != nil {
		return fmt.Errorf("visiting %s: %w", v.url, err)
	}
	answers, err := t.query(ctx, v.source, u.Hostname(), "A", v.dns)
	if err != nil {
		return err
	}
	if len(answers) == 0 {
		return fmt.Errorf("%s has no address from %s", u.Hostname(), v.source)
	}
	return t.curl(ctx, p, v, rdata(answers[0]))
}

// curl connects to an address with curl, and prints the reply.
func (t *transcript) curl(ctx context.Context, p *proxy, v visit, address string) error {
	args, err := v.arguments(address)
	if err != nil {
		return err
	}
	t.printf("$ curl %s\n", strings.Join(args, " "))
	reply, right, err := curl(ctx, p.dir, v.reply, args)
	if err != nil {
		return err
	}
	t.verdict(reply, right)
	return nil
}

// arguments returns the arguments of curl, with --resolve because the host's resolver does not have the names.
func (v visit) arguments(address string) ([]string, error) {
	u, err := url.Parse(v.url)
	if err != nil {
		return nil, fmt.Errorf("visiting %s: %w", v.url, err)
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	args := []string{"--resolve", u.Hostname() + ":" + port + ":" + address}
	if v.source != "" {
		args = append([]string{"--interface", v.source}, args...)
	}
	if v.trust != "" {
		args = append(args, "--cacert", v.trust)
	}
	return append(args, v.url), nil
}

// curl runs curl in a directory; through is a command that runs it elsewhere. It returns the first line of the output
// with the prefix, or else the first line. right reports whether there is such a line and curl succeeded.
func curl(ctx context.Context, dir, prefix string, args []string, through ...string) (reply string, right bool, err error) {
	command := slices.Concat(through, []string{"curl", "--silent", "--show-error", "--max-time", "5"}, args)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", false, ctx.Err()
	case err != nil && !errors.As(err, &exit):
		return "", false, fmt.Errorf("running curl: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, prefix) {
			return line, err == nil, nil
		}
	}
	reply, _, _ = strings.Cut(string(out), "\n")
	return reply, false, nil
}

// showSwap moves the OAuth server to another pod while a client reads a stream from the app shop, which must not be
// interrupted.
func (t *transcript) showSwap(ctx context.Context, c *clusters, p *proxy) error {
	shop := visit{source: demoVM, url: "https://" + shopName + "/ticks", trust: "shop.crt"}
	args, err := shop.arguments(vlanIP)
	if err != nil {
		return err
	}
	t.printf("\n# While a client reads a stream from the app shop, the OAuth server moves to another pod.\n$ curl --no-buffer %s &\n", strings.Join(args, " "))
	stream, err := p.stream(ctx, append([]string{"--silent", "--show-error", "--no-buffer"}, args...))
	if err != nil {
		return err
	}
	defer stream.stop()
	if _, err := stream.read(10); err != nil {
		return err
	}
	oauth := visit{source: demoVM, url: "https://oauth.demo.lab.example.com/", trust: "oauth.crt", reply: "oauth-openshift-2: request for oauth.demo.lab.example.com"}
	reached, err := p.reaches(oauth)
	if err != nil {
		return err
	}
	change := endpoints("oauth-openshift", "", "6443", newOAuthPod)
	t.printf("$ kubectl apply -f - <<EOF\n%s\nEOF\n", strings.TrimSpace(change))
	took, err := follow(ctx, c.management, change, "the new pod answering", reached)
	if err != nil {
		return err
	}
	t.printf("  the new pod answered %s after the API server accepted the change\n", milliseconds(took))
	if err := t.visit(ctx, p, visit{source: oauth.source, url: oauth.url, trust: oauth.trust, dns: only(vlanIP), reply: oauth.reply}); err != nil {
		return err
	}
	count, err := stream.read(10)
	t.printf("$ fg\n")
	if err != nil {
		t.verdict(err.Error(), false)
		return nil
	}
	t.verdict(fmt.Sprintf("tick 1 to tick %d on one connection, none missing", count), true)
	return nil
}

// reaches returns a function that reports whether a new connection through the proxy gets the expected reply.
func (p *proxy) reaches(v visit) (func(context.Context) bool, error) {
	certificate, err := os.ReadFile(filepath.Join(p.dir, v.trust))
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(v.source)}}
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, vlanIP+":443")
		},
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}}
	return func(ctx context.Context) bool {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url, http.NoBody)
		if err != nil {
			return false
		}
		response, err := client.Do(request)
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }() // read completely
		reply, err := io.ReadAll(response.Body)
		return err == nil && strings.HasPrefix(string(reply), v.reply)
	}, nil
}

// A stream is a running curl that reads numbered lines.
type stream struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	count int
}

// stream starts curl with the arguments in the directory of the proxy.
func (p *proxy) stream(ctx context.Context, args []string) (*stream, error) {
	cmd := exec.CommandContext(ctx, "curl", args...)
	cmd.Dir = p.dir
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("running curl: %w", err)
	}
	return &stream{cmd: cmd, lines: bufio.NewScanner(out)}, nil
}

// read reads the lines that are buffered in the pipe, and then so many new ones. It returns the number of lines since
// the start, or an error if one is missing.
func (s *stream) read(more int) (int, error) {
	for waited := 0; waited < more; {
		before := time.Now()
		if !s.lines.Scan() {
			return 0, fmt.Errorf("the stream ended after tick %d", s.count)
		}
		s.count++
		if s.lines.Text() != fmt.Sprintf("tick %d", s.count) {
			return 0, fmt.Errorf("after tick %d came %q", s.count-1, s.lines.Text())
		}
		if time.Since(before) > time.Millisecond { // else it was buffered
			waited++
		}
	}
	return s.count, nil
}

func (s *stream) stop() {
	_ = s.cmd.Process.Kill() // it may have exited
	_ = s.cmd.Wait()         // the error says only that it was killed
}
