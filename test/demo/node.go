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

// runOnNode runs the demo with kubectl oooi and the daemons as pods of a node.
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
	for _, show := range []func(context.Context, *transcript) error{s.showSetup, s.showVM, s.showPod, s.showReports, s.showChange} {
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

// showSetup runs setup, and waits for the apps address.
func (s *site) showSetup(ctx context.Context, t *transcript) error {
	infra, err := objects.ReadFile("objects/node/setup/infra.yaml")
	if err != nil {
		return fmt.Errorf("reading the Infra: %w", err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "infra.yaml"), infra, 0o600); err != nil {
		return fmt.Errorf("writing the Infra: %w", err)
	}
	t.printf("\n# The VMs of a hosted cluster are on an isolated VLAN. An Infra describes the services for this VLAN:\n$ cat infra.yaml\n%s", infra)
	if err := s.oooi(ctx, t, []string{"setup", "-f", "infra.yaml", "--image", oooiImage, "--envoy-image", envoyImage},
		"Infra clusters/demo created", "every component works, after"); err != nil {
		return err
	}
	t.printf("\n# xdsd control creates the apps Service in the hosted cluster, and MetalLB assigns it an address.\n")
	ctx, cancel := context.WithTimeout(ctx, startDeadline)
	defer cancel()
	return t.showApps(ctx, s.clusters, &process{}, `Ready ["`+nodeApps+`"]`) // control runs in a pod
}

// oooiDeadline is longer than the default --timeout of kubectl oooi, 5 minutes, whose error names what it waited for.
const oooiDeadline = 6 * time.Minute

// oooi runs kubectl oooi, and checks that its output contains the wanted texts.
func (s *site) oooi(ctx context.Context, t *transcript, args []string, wanted ...string) error {
	ctx, cancel := context.WithTimeout(ctx, oooiDeadline)
	defer cancel()
	return t.command(ctx, s.command(ctx, "kubectl-oooi", args...), "kubectl oooi "+strings.Join(args, " "), wanted...)
}

// showVM boots a VM, which resolves names and connects with the settings that it gets from DHCP.
func (s *site) showVM(ctx context.Context, t *transcript) error {
	t.printf("\n# A VM of the hosted cluster boots: a network namespace on the VLAN, with the MAC address of a VirtualMachineInstance.\n")
	if _, _, err := t.boot(ctx, s.vm, dhcpAnswer{network: "198.18.50.0/24", dns: nodeDNS, name: vmName}); err != nil {
		return err
	}
	t.printf("\n# It queries the DNS server in its lease, connects through the proxy, and verifies the certificates of the hosted control plane.\n")
	vm := client{prompt: "vm$", through: []string{s.program("vm")}, dir: s.dir}
	for _, v := range []visit{
		{url: "https://api.demo.lab.example.com:6443/version", trust: "api.crt", dns: only(nodeProxy), reply: `"gitVersion": "v`},
		{url: "https://oauth.demo.lab.example.com/", trust: "oauth.crt", dns: only(nodeProxy), reply: "oauth: request for oauth.demo.lab.example.com"},
		{url: "https://ignition.demo.lab.example.com/", trust: "ignition.crt", dns: only(nodeProxy), reply: "ignition: request for ignition.demo.lab.example.com"},
		{url: "https://konnectivity.demo.lab.example.com/", trust: "konnectivity.crt", dns: only(nodeProxy), reply: "konnectivity: request for konnectivity.demo.lab.example.com"},
		{heading: "The apps address is on the VLAN, where MetalLB announces it", url: "https://" + shopName + "/", trust: "shop.crt", dns: only(nodeApps), reply: "shop: request for " + shopName},
	} {
		if err := vm.visit(ctx, t, v); err != nil {
			return err
		}
	}
	t.printf("\n# DNS forwards all other names to the upstream resolver.\n")
	return vm.ask(ctx, t, "www.example.com", forwarded)
}

// showPod connects by the same names from a pod.
func (s *site) showPod(ctx context.Context, t *transcript) error {
	through, proxy, err := s.startPod(ctx)
	if err != nil {
		return err
	}
	pod := client{prompt: "pod$", through: through}
	t.printf("\n# A pod of the management cluster uses the same names. They resolve to the proxy's Service; the proxy connects to apps from its VLAN address.\n")
	for _, v := range []visit{
		{url: "https://api.demo.lab.example.com:6443/version", trust: "api.crt", dns: only(proxy), reply: `"gitVersion": "v`},
		{url: "https://" + shopName + "/", trust: "shop.crt", dns: only(proxy), reply: "shop: request for " + shopName + " from " + nodeProxy},
	} {
		if err := pod.visit(ctx, t, v); err != nil {
			return err
		}
	}
	return nil
}

// showReports runs the read-only commands of kubectl oooi.
func (s *site) showReports(ctx context.Context, t *transcript) error {
	t.printf("\n# The reports of kubectl oooi.\n")
	for _, report := range []struct{ command, wanted string }{
		{"status -n clusters", "demo clusters/demo" + strings.Repeat(" True", 3) + " " + nodeApps + " True"},
		{"routes -n clusters", "443 SNI oauth.demo.lab.example.com Service clusters-demo/oauth-openshift:6443"},
		{"leases -n clusters", vmMAC + " clusters-demo/" + vmName},
		{"resolve oauth.demo.lab.example.com", "Answer: " + nodeProxy},
		{"doctor demo -n clusters --probe --fail-on=warn", "Infra clusters/demo: no problems found"},
		{"test demo -n clusters", "Infra clusters/demo: 24 passed, 3 skipped"},
	} {
		if err := s.oooi(ctx, t, strings.Fields(report.command), report.wanted); err != nil {
			return err
		}
	}
	return nil
}

// showChange creates a Route, as HyperShift would, and prints how long it takes until the VM can connect by its
// hostname.
func (s *site) showChange(ctx context.Context, t *transcript) error {
	vm := client{prompt: "vm$", through: []string{s.program("vm")}, dir: s.dir}
	t.printf("\n# HyperShift creates a Route with a generated hostname.\n")
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
	took, err := follow(ctx, s.management, change, "the VM connecting by the new name", func(ctx context.Context) bool { return s.connects(ctx, ignitionName, roots) })
	if err != nil {
		return err
	}
	t.printf("  the VM resolved the name and verified the backend's certificate %s after the API server accepted the change\n", milliseconds(took))
	return vm.visit(ctx, t, visit{url: "https://" + ignitionName + "/", trust: "ignition.crt", dns: only(nodeProxy), reply: "ignition: request for " + ignitionName})
}

// connects reports whether the VM resolves the name to the proxy, connects to it, and verifies the certificate of the
// server.
func (s *site) connects(ctx context.Context, name string, roots *x509.CertPool) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var conn net.Conn
	err := s.vm.Do(func() error { // sockets that are opened here belong to the VM's network namespace
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
	defer func() { _ = conn.Close() }() // no data was sent
	return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS12}).HandshakeContext(ctx) == nil
}

// showTeardown deletes the Infra and everything that setup created.
func (s *site) showTeardown(ctx context.Context, t *transcript) error {
	t.printf("\n# Delete everything.\n")
	if err := s.oooi(ctx, t, []string{"teardown", "demo", "-n", "clusters", "--yes"}, "Infra clusters/demo deleted"); err != nil {
		return err
	}
	return s.oooi(ctx, t, []string{"status", "-n", "clusters"}, "No resources found in clusters namespace.")
}
