package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/densityops/oooi/test/lab"
)

// proxy is the proxy of cluster demo: xdsd, the Envoy that it drives, and the servers
// behind that.
type proxy struct {
	dir  string
	pods *pods
	xdsd *process
	// envoy runs with what xdsd bootstrap prints.
	envoy *lab.Envoy
}

// vlanIP is the proxy's address on the VLAN after all changes to the Infra.
const vlanIP = "127.50.0.4"

// startProxy starts the proxy, and tells of it on the transcript.
func (t *transcript) startProxy(ctx context.Context, c *clusters, dir, xdsd string, v *vlan) (*proxy, error) {
	p := &proxy{dir: dir}
	err := p.start(ctx, t, c, xdsd, v)
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *proxy) start(ctx context.Context, t *transcript, c *clusters, xdsd string, v *vlan) error {
	serviceIP, err := t.server.serviceIP(ctx)
	if err != nil {
		return err
	}
	if p.pods, err = startPods(ctx, p.dir); err != nil {
		return err
	}
	if err := p.apply(ctx, t, c); err != nil {
		return err
	}
	reader, err := c.management.UserKubeconfig("xdsd-serve")
	if err != nil {
		return err
	}
	// There is no kube-proxy, so Envoy listens on the address of its Service itself.
	bind := []string{vlanIP, serviceIP}
	if v != nil {
		bind = append(bind, bridgeProxy)
	}
	sockets := []string{"--socket", filepath.Join(p.dir, "xdsd.sock")}
	serve := append([]string{
		"serve", "--kubeconfig", reader, "--proxy-server", "clusters/demo", "--infra", "clusters/demo",
		"--hosted-cluster", "clusters/demo", "--bind", strings.Join(bind, ","), "--http", "127.0.0.1:9902",
	}, sockets...)
	t.printf("$ xdsd %s &\n", strings.Join(serve, " "))
	if p.xdsd, err = startProcess(p.dir, "xdsd", xdsd, serve...); err != nil {
		return err
	}
	bootstrap := append([]string{
		"bootstrap", "--proxy-server", "clusters/demo", "--node-id", "demo-proxy-0", "--admin-socket", filepath.Join(p.dir, "admin.sock"),
	}, sockets...)
	t.printf("$ xdsd %s > envoy.yaml\n$ envoy -c envoy.yaml $(xdsd ... --args) &\n", strings.Join(bootstrap, " "))
	if p.envoy, err = startEnvoy(ctx, xdsd, bootstrap); err != nil {
		return p.xdsd.blame(err)
	}
	return p.await(ctx)
}

// await returns when the proxy knows its way to the applications, which comes last:
// from inside the hosted cluster.
func (p *proxy) await(ctx context.Context) error {
	shop := visit{source: demoVM, url: "https://" + shopName + "/", trust: "shop.crt", says: "shop"}
	args, err := shop.arguments(vlanIP)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, followDeadline)
	defer cancel()
	for last := ""; ; {
		said, right, err := curl(ctx, p.dir, shop.says, args)
		if right {
			return nil
		}
		if err == nil {
			last = said
		}
		select {
		case <-p.xdsd.ended:
			return p.xdsd.blame(fmt.Errorf("xdsd ended: %w", p.xdsd.err))
		case <-ctx.Done():
			return p.xdsd.blame(fmt.Errorf("waiting for the shop to answer through the proxy: %w; last: %s", ctx.Err(), last))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serviceIP is the cluster IP of the proxy's Service, as the DNS has it for pods.
func (s *server) serviceIP(ctx context.Context) (string, error) {
	reply, err := s.ask(ctx, pod, "api.demo.lab.example.com", dns.TypeA)
	if err != nil {
		return "", err
	}
	for _, rr := range reply.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String(), nil
		}
	}
	return "", fmt.Errorf("the DNS does not know the proxy's Service")
}

// apply applies what is behind the proxy, and its ProxyServer.
func (p *proxy) apply(ctx context.Context, t *transcript, c *clusters) error {
	hosted, err := url.Parse(c.hosted.ServerURL())
	if err != nil {
		return fmt.Errorf("reading the hosted API server's URL: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "api.crt"), c.hosted.CA(), 0o600); err != nil {
		return fmt.Errorf("writing the hosted API server's authority: %w", err)
	}
	if err := applyFolder(ctx, c.management, "objects/proxy"); err != nil {
		return err
	}
	for _, slice := range []string{endpoints("kube-apiserver", "client", hosted.Port(), apiPod), endpoints("oauth-openshift", "", "6443", oauthPod)} {
		if err := c.management.ApplyYAML(ctx, []byte(slice)); err != nil {
			return err
		}
	}
	t.printf("$ kubectl apply -f - <<EOF\n%s\nEOF\n", strings.TrimSpace(proxyServer))
	return c.management.ApplyYAML(ctx, []byte(proxyServer))
}

// startEnvoy starts the real Envoy with exactly what xdsd prints.
func startEnvoy(ctx context.Context, xdsd string, bootstrap []string) (*lab.Envoy, error) {
	binary, err := lab.InstallEnvoy(ctx, nil)
	if err != nil {
		return nil, err
	}
	config, err := output(ctx, xdsd, bootstrap...)
	if err != nil {
		return nil, err
	}
	args, err := output(ctx, xdsd, append(bootstrap, "--args")...)
	if err != nil {
		return nil, err
	}
	return lab.StartEnvoy(ctx, lab.EnvoyConfig{Binary: binary, Bootstrap: config, Args: strings.Fields(string(args))})
}

// output runs a command and returns what it prints.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out, nil
}

func (p *proxy) stop() {
	if p.envoy != nil {
		if err := p.envoy.Stop(); err != nil {
			progress("stopping Envoy: %v", err)
		}
	}
	if p.xdsd != nil {
		p.xdsd.stop()
	}
	if p.pods != nil {
		p.pods.stop()
	}
}

const proxyServer = `
apiVersion: hostedcluster.densityops.com/v1alpha1
kind: ProxyServer
metadata: {name: demo, namespace: clusters}
spec:
  infraRef: {name: demo}
  networkConfig: {serverIP: 127.50.0.4, networkAttachmentName: vlan50}
`

// endpoints is the EndpointSlice of a Service with one pod.
func endpoints(service, portName, port, address string) string {
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: clusters-demo, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "%[2]s", port: %[3]s}]
endpoints: [{addresses: [%[4]s], conditions: {ready: true}}]
`, service, portName, port, address)
}
