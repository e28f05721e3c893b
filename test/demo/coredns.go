package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// corefile is the Corefile of the demo. The last server block is the upstream resolver, to which CoreDNS forwards all
// other names.
const corefile = `.:%[1]d {
    bind 127.0.0.1
    errors
    hcpviews lab.example.com {
        kubeconfig %[3]s
    }
    hcpapps lab.example.com
    forward . 127.0.0.1:%[2]d
}
%[4]s
.:%[2]d {
    bind 127.0.0.1
    template IN ANY . {
        answer "{{ .Name }} 60 IN A 203.0.113.99"
    }
}
`

// corefileVLAN is the server block for the VMs on the second VLAN.
const corefileVLAN = `
.:53 {
    bind ` + bridgeDNS + `
    errors
    hcpviews lab.example.com {
        kubeconfig %[2]s
        view vlan
    }
    hcpapps lab.example.com
    forward . 127.0.0.1:%[1]d
}
`

// upstream is the address with which the upstream resolver answers.
const upstream = "203.0.113.99"

// A server is a running CoreDNS.
type server struct {
	*process

	port int
}

// startCoreDNS starts CoreDNS, which also listens on the second VLAN unless v is nil, and waits until it answers.
func startCoreDNS(ctx context.Context, binary, dir, kubeconfig string, v *vlan, out io.Writer) (*server, error) {
	ports, err := lab.ReservePorts(ctx, "127.0.0.1", 2)
	if err != nil {
		return nil, err
	}
	defer ports.Release() // CoreDNS listens on them before this returns
	port, upstreamPort := ports.Numbers[0], ports.Numbers[1]
	onVLAN := ""
	if v != nil {
		onVLAN = fmt.Sprintf(corefileVLAN, upstreamPort, kubeconfig)
	}
	text := fmt.Sprintf(corefile, port, upstreamPort, kubeconfig, onVLAN)
	path := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("writing the Corefile: %w", err)
	}
	fmt.Fprintf(out, "$ cat Corefile\n%s\n$ coredns -conf Corefile\n", text)

	p, err := startProcess(dir, "coredns", binary, "-conf", path)
	if err != nil {
		return nil, err
	}
	s := &server{process: p, port: port}
	if err := s.await(ctx); err != nil {
		s.stop()
		return nil, s.withLog(err)
	}
	return s, nil
}

// await waits until CoreDNS answers from the objects that it has read.
func (s *server) await(ctx context.Context) error {
	for {
		// The apps address is the last, because it comes from the hosted cluster.
		if a, err := s.ask(ctx, demoVM, "any.apps.demo.lab.example.com", dns.TypeA); err == nil && len(a.Answer) > 0 && a.Authoritative {
			return nil
		}
		select {
		case <-s.ended:
			return fmt.Errorf("coredns exited: %w", s.err)
		case <-ctx.Done():
			return fmt.Errorf("waiting for CoreDNS to answer: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ask queries CoreDNS from a source address.
func (s *server) ask(ctx context.Context, source, name string, qtype uint16) (*dns.Msg, error) {
	return ask(ctx, net.JoinHostPort("127.0.0.1", fmt.Sprint(s.port)), source, name, qtype)
}

// ask sends one query to a server from a source address.
func ask(ctx context.Context, server, source, name string, qtype uint16) (*dns.Msg, error) {
	client := dns.Client{
		Timeout: time.Second,
		Dialer:  &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}},
	}
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	reply, _, err := client.ExchangeContext(ctx, m, server)
	if err != nil {
		return nil, fmt.Errorf("querying %s from %s: %w", name, source, err)
	}
	return reply, nil
}

// dig returns the command line of dig for a query from a source address.
func (s *server) dig(source, name, qtype string) []string {
	return []string{"dig", "@127.0.0.1", "-p", fmt.Sprint(s.port), "-b", source, name, qtype}
}

// dig runs a command line of dig, and returns the status and the answer section.
func dig(ctx context.Context, command []string) (status string, answers []string, err error) {
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], "+noall", "+comments", "+answer", "+tries=1", "+timeout=3")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch _, rest, found := strings.Cut(line, "status: "); {
		case found:
			status, _, _ = strings.Cut(rest, ",")
		case line != "" && !strings.HasPrefix(line, ";"):
			answers = append(answers, strings.Join(strings.Fields(line), " "))
		}
	}
	return status, answers, nil
}
