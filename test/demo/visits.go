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

// visit is a connection by name: what DNS says, and who answers there.
type visit struct {
	heading string
	source  string // "" for a machine that has but one address
	url     string
	trust   string // the server's certificate, or its authority's; "" for plain HTTP
	dns     want
	says    string // what the server says, or the beginning of it
}

// showProxy connects through the proxy as virtual machines and pods would.
func (t *transcript) showProxy(ctx context.Context, c *clusters, p *proxy) error {
	service := in("127.96.0.0/16")
	for _, v := range []visit{
		{"A virtual machine connects by name, and verifies whom it reaches: the hosted cluster's own API server", demoVM, "https://api.demo.lab.example.com:6443/version", "api.crt", only(vlanIP), `"gitVersion": "v`},
		{"The OAuth server, by its own name and by the one that it has among the applications", demoVM, "https://oauth.demo.lab.example.com/", "oauth.crt", only(vlanIP), "oauth-openshift-1, asked for oauth.demo.lab.example.com"},
		{"", demoVM, "https://oauth-openshift.apps.demo.lab.example.com/", "oauth.crt", only(vlanIP), "oauth-openshift-1, asked for oauth-openshift.apps.demo.lab.example.com"},
		{"A pod connects to applications, which the proxy reaches from its address on the VLAN", pod, "https://" + shopName + "/", "shop.crt", service, "shop, asked for " + shopName + " by " + vlanIP},
		{"", pod, "https://" + cartName + "/", "cart.crt", service, "cart, asked for " + cartName + " by " + vlanIP},
		{"", pod, "http://" + shopName + "/", "", service, "shop, asked for " + shopName + " by " + vlanIP},
		{"", pod, "http://" + cartName + "/", "", service, "cart, asked for " + cartName + " by " + vlanIP},
		{"", pod, "https://api.demo.lab.example.com:6443/version", "api.crt", service, `"gitVersion": "v`},
	} {
		if v.heading != "" {
			t.printf("\n# %s.\n", v.heading)
		}
		if err := t.visit(ctx, p, v); err != nil {
			return err
		}
	}
	t.printf("\n# On the VLAN applications are reached without the proxy, but it takes whoever asks it for one.\n")
	for _, v := range []visit{
		{"", demoVM, "https://" + shopName + "/", "shop.crt", want{}, "shop, asked for " + shopName + " by " + vlanIP},
		{"", demoVM, "http://" + shopName + "/", "", want{}, "shop, asked for " + shopName + " by " + vlanIP},
	} {
		if err := t.curl(ctx, p, v, vlanIP); err != nil {
			return err
		}
	}
	return t.showSwap(ctx, c, p)
}

// visit asks for a name, and connects to the address that was the answer.
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

// curl connects to an address, and prints what the server there says.
func (t *transcript) curl(ctx context.Context, p *proxy, v visit, address string) error {
	args, err := v.arguments(address)
	if err != nil {
		return err
	}
	t.printf("$ curl %s\n", strings.Join(args, " "))
	said, right, err := curl(ctx, p.dir, v.says, args)
	if err != nil {
		return err
	}
	t.verdict(said, right)
	return nil
}

// arguments are those of curl, which takes the address from us rather than from the
// machine's resolver.
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

// curl runs curl in a folder, through another command if there is one. It returns the line of
// what curl prints that begins as it should, or if there is none the first.
func curl(ctx context.Context, dir, begins string, args []string, through ...string) (said string, right bool, err error) {
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
		if line = strings.TrimSpace(line); strings.HasPrefix(line, begins) {
			return line, err == nil, nil
		}
	}
	said, _, _ = strings.Cut(string(out), "\n")
	return said, false, nil
}

// showSwap moves the OAuth server to another pod while a client of the shop reads on.
func (t *transcript) showSwap(ctx context.Context, c *clusters, p *proxy) error {
	shop := visit{source: demoVM, url: "https://" + shopName + "/ticks", trust: "shop.crt"}
	args, err := shop.arguments(vlanIP)
	if err != nil {
		return err
	}
	t.printf("\n# While a client of the shop reads a stream, the OAuth server moves to another pod.\n$ curl --no-buffer %s &\n", strings.Join(args, " "))
	stream, err := p.stream(ctx, append([]string{"--silent", "--show-error", "--no-buffer"}, args...))
	if err != nil {
		return err
	}
	defer stream.stop()
	if _, err := stream.read(10); err != nil {
		return err
	}
	oauth := visit{source: demoVM, url: "https://oauth.demo.lab.example.com/", trust: "oauth.crt", says: "oauth-openshift-2, asked for oauth.demo.lab.example.com"}
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
	t.printf("  the new pod answered %s after the API server had taken the change\n", milliseconds(took))
	if err := t.visit(ctx, p, visit{source: oauth.source, url: oauth.url, trust: oauth.trust, dns: only(vlanIP), says: oauth.says}); err != nil {
		return err
	}
	count, err := stream.read(10)
	t.printf("$ fg\n")
	if err != nil {
		t.verdict(err.Error(), false)
		return nil
	}
	t.verdict(fmt.Sprintf("tick 1 to tick %d on the one connection, none missing", count), true)
	return nil
}

// reaches returns what tells whether a new connection through the proxy gets to the
// right server.
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
		defer func() { _ = response.Body.Close() }() // read to its end
		said, err := io.ReadAll(response.Body)
		return err == nil && strings.HasPrefix(string(said), v.says)
	}, nil
}

// stream is a curl that reads ticks.
type stream struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	count int
}

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

// read reads what has come meanwhile, which is in the pipe, and more: until it has waited
// for some ticks. It returns the number of all of them.
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
		if time.Since(before) > time.Millisecond { // else it was there already
			waited++
		}
	}
	return s.count, nil
}

func (s *stream) stop() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()         // as it was killed
}
