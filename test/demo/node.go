package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// runOnNode shows kubectl oooi, and what it sets up on a node.
func runOnNode(ctx context.Context, o options, dir string, out io.Writer) error {
	startCtx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	s, err := startSite(startCtx, dir)
	if err != nil {
		return err
	}
	defer func() {
		if err := s.stop(); err != nil {
			progress("stopping the clusters: %v", err)
		}
	}()
	if err := s.writePrograms(o.oooi); err != nil {
		return err
	}
	t := &transcript{Writer: out}
	for _, show := range []func(context.Context, *transcript) error{s.showSetup, s.showMachine, s.showPod, s.showReports, s.showChange} {
		if err := show(ctx, t); err != nil {
			return err
		}
	}
	if !o.stay {
		if err := s.showTeardown(ctx, t); err != nil {
			return err
		}
	}
	if err := t.sum(); err != nil || !o.stay {
		return err
	}
	return s.prompt(ctx, t)
}

// showSetup sets up the VLAN.
func (s *site) showSetup(ctx context.Context, t *transcript) error {
	infra, err := objects.ReadFile("objects/node/setup/infra.yaml")
	if err != nil {
		return fmt.Errorf("reading the Infra: %w", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "infra.yaml"), infra, 0o600); err != nil {
		return fmt.Errorf("writing the Infra: %w", err)
	}
	t.printf("\n# A hosted cluster whose machines are on a VLAN, and reach nothing. What is to be there is an Infra:\n$ cat infra.yaml\n%s", infra)
	if err := s.oooi(ctx, t, []string{"setup", "-f", "infra.yaml", "--image", oooiImage, "--envoy-image", envoyImage},
		"Infra clusters/demo created", "every component works, after"); err != nil {
		return err
	}
	t.printf("\n# Inside the hosted cluster there is a Service for applications now, to which the MetalLB there has given an address.\n")
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	return t.showApps(ctx, s.clusters, &process{}, `Ready ["`+nodeApps+`"]`) // control is in a pod
}

// oooiDeadline is beyond that of kubectl oooi itself, 5 minutes, which says what it waited for.
const oooiDeadline = 6 * time.Minute

// oooi runs kubectl oooi, and finds lines in what it prints.
func (s *site) oooi(ctx context.Context, t *transcript, args []string, wanted ...string) error {
	ctx, cancel := context.WithTimeout(ctx, oooiDeadline)
	defer cancel()
	return t.command(ctx, s.command(ctx, "kubectl-oooi", args...), "kubectl oooi "+strings.Join(args, " "), wanted...)
}

// showMachine boots a machine, which connects by what it is told.
func (s *site) showMachine(ctx context.Context, t *transcript) error {
	t.printf("\n# A machine of the hosted cluster boots: a network namespace on the VLAN, with the MAC address of a VirtualMachineInstance.\n")
	if _, _, err := t.boot(ctx, s.vm, told{network: "198.18.50.0/24", dns: nodeDNS, name: machineVMI}); err != nil {
		return err
	}
	t.printf("\n# It asks the DNS server that it was told of, and verifies whom it reaches: the hosted cluster's own API server, by the proxy.\n")
	vm := client{prompt: "vm$", through: []string{s.program("vm")}, dir: s.dir}
	for _, v := range []visit{
		{url: "https://api.demo.lab.example.com:6443/version", trust: "api.crt", dns: only(nodeProxy), says: `"gitVersion": "v`},
		{url: "https://oauth.demo.lab.example.com/", trust: "oauth.crt", dns: only(nodeProxy), says: "oauth, asked for oauth.demo.lab.example.com"},
		{url: "https://ignition.demo.lab.example.com/", trust: "ignition.crt", dns: only(nodeProxy), says: "ignition, asked for ignition.demo.lab.example.com"},
		{url: "https://konnectivity.demo.lab.example.com/", trust: "konnectivity.crt", dns: only(nodeProxy), says: "konnectivity, asked for konnectivity.demo.lab.example.com"},
		{heading: "Applications are on the VLAN themselves, where MetalLB has put them", url: "https://" + shopName + "/", trust: "shop.crt", dns: only(nodeApps), says: "shop, asked for " + shopName},
	} {
		if err := vm.visit(ctx, t, v); err != nil {
			return err
		}
	}
	t.printf("\n# All other names are passed on to the site's resolvers.\n")
	return vm.ask(ctx, t, "www.example.com", passed)
}

// showPod has a pod connect by the same names.
func (s *site) showPod(ctx context.Context, t *transcript) error {
	through, proxy, err := s.startPod(ctx)
	if err != nil {
		return err
	}
	pod := client{prompt: "pod$", through: through}
	t.printf("\n# A pod of the management cluster, by the same names: they lead to the proxy's Service, and applications are reached from its address on the VLAN.\n")
	for _, v := range []visit{
		{url: "https://api.demo.lab.example.com:6443/version", trust: "api.crt", dns: only(proxy), says: `"gitVersion": "v`},
		{url: "https://" + shopName + "/", trust: "shop.crt", dns: only(proxy), says: "shop, asked for " + shopName + " by " + nodeProxy},
	} {
		if err := pod.visit(ctx, t, v); err != nil {
			return err
		}
	}
	return nil
}

// showReports has kubectl oooi tell how things are.
func (s *site) showReports(ctx context.Context, t *transcript) error {
	t.printf("\n# What there is, and why.\n")
	for _, report := range []struct{ command, wanted string }{
		{"status -n clusters", "demo clusters/demo" + strings.Repeat(" True", 3) + " " + nodeApps + " True"},
		{"routes -n clusters", "443 SNI oauth.demo.lab.example.com Service clusters-demo/oauth-openshift:6443"},
		{"leases -n clusters", machineMAC + " clusters-demo/" + machineVMI},
		{"resolve oauth.demo.lab.example.com", "Answer: " + nodeProxy},
		{"doctor demo -n clusters --probe --fail-on=warn", "Infra clusters/demo:"},
	} {
		if err := s.oooi(ctx, t, strings.Fields(report.command), report.wanted); err != nil {
			return err
		}
	}
	return nil
}

// showChange has HyperShift publish a service by another name, and tells how soon a machine
// gets there by it.
func (s *site) showChange(ctx context.Context, t *transcript) error {
	vm := client{prompt: "vm$", through: []string{s.program("vm")}, dir: s.dir}
	t.printf("\n# HyperShift makes a Route, with a hostname that nobody could have guessed.\n")
	if err := vm.ask(ctx, t, ignitionName, nxDomain); err != nil {
		return err
	}
	certificate, err := os.ReadFile(filepath.Join(s.dir, "ignition.crt"))
	if err != nil {
		return fmt.Errorf("reading a certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	change := ignitionRoute(ignitionName)
	t.printf("$ kubectl apply -f - <<EOF\n%s\nEOF\n", strings.TrimSpace(change))
	took, err := follow(ctx, s.management, change, "the machine connecting by the new name", func(ctx context.Context) bool { return s.connects(ctx, ignitionName, roots) })
	if err != nil {
		return err
	}
	t.printf("  the machine got through by that name, and verified whom it reached, %s after the API server had taken the change\n", milliseconds(took))
	return vm.visit(ctx, t, visit{url: "https://" + ignitionName + "/", trust: "ignition.crt", dns: only(nodeProxy), says: "ignition, asked for " + ignitionName})
}

// connects reports whether the machine finds the name, connects to where that leads, and there
// is whom it trusts.
func (s *site) connects(ctx context.Context, name string, roots *x509.CertPool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var conn net.Conn
	err := s.vm.Do(func() error { // what is opened here is the machine's
		reply, _, err := new(dns.Client).ExchangeContext(ctx, new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA), net.JoinHostPort(nodeDNS, "53"))
		if err != nil {
			return err
		}
		for _, rr := range reply.Answer {
			if a, ok := rr.(*dns.A); ok && a.A.String() == nodeProxy {
				conn, err = new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(nodeProxy, "443"))
			}
		}
		return err
	})
	if err != nil || conn == nil {
		return false
	}
	defer func() { _ = conn.Close() }() // nothing was sent that might be lost
	return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx) == nil
}

// showTeardown takes everything down again.
func (s *site) showTeardown(ctx context.Context, t *transcript) error {
	t.printf("\n# And away.\n")
	if err := s.oooi(ctx, t, []string{"teardown", "demo", "-n", "clusters", "--yes"}, "Infra clusters/demo deleted"); err != nil {
		return err
	}
	return s.oooi(ctx, t, []string{"status", "-n", "clusters"}, "No resources found in clusters namespace.")
}
