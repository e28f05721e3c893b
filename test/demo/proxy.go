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

// A proxy is the proxy of cluster demo: xdsd, Envoy, and the servers behind it.
type proxy struct {
	dir      string
	backends *backends
	xdsd     *process
	// envoy runs with the output of xdsd bootstrap.
	envoy *lab.Envoy
}

// vlanIP is the proxy's VLAN address after all changes of the Infra.
const vlanIP = "127.50.0.4"

// startProxy starts the proxy, prints the commands, and waits until it routes to apps.
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
	if p.backends, err = startBackends(ctx, p.dir); err != nil {
		return err
	}
	if err := p.apply(ctx, t, c); err != nil {
		return err
	}
	reader, err := c.management.UserKubeconfig("xdsd-serve")
	if err != nil {
		return err
	}
	// Without kube-proxy, Envoy listens on the cluster IP of its Service itself.
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
		return p.xdsd.withLog(err)
	}
	return p.await(ctx)
}

// await waits until the proxy routes to apps, whose address is the last to be known because it comes from the hosted
// cluster.
func (p *proxy) await(ctx context.Context) error {
	shop := visit{source: demoVM, url: "https://" + shopName + "/", trust: "shop.crt", reply: "shop"}
	args, err := shop.arguments(vlanIP)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, followDeadline)
	defer cancel()
	for last := ""; ; {
		reply, right, err := curl(ctx, p.dir, shop.reply, args)
		if right {
			return nil
		}
		if err == nil {
			last = reply
		}
		select {
		case <-p.xdsd.ended:
			return p.xdsd.withLog(fmt.Errorf("xdsd exited: %w", p.xdsd.err))
		case <-ctx.Done():
			return p.xdsd.withLog(fmt.Errorf("waiting for the app shop to answer through the proxy: %w; last: %s", ctx.Err(), last))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// serviceIP returns the cluster IP of the proxy's Service, with which DNS answers pods.
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
	return "", fmt.Errorf("DNS has no address of the proxy's Service")
}

// apply applies the Services and endpoints behind the proxy, and its ProxyServer.
func (p *proxy) apply(ctx context.Context, t *transcript, c *clusters) error {
	hosted, err := url.Parse(c.hosted.ServerURL())
	if err != nil {
		return fmt.Errorf("reading the hosted API server's URL: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "api.crt"), c.hosted.CA(), 0o600); err != nil {
		return fmt.Errorf("writing the CA of the hosted API server: %w", err)
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

// startEnvoy starts Envoy with the configuration and the arguments that xdsd bootstrap prints.
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

// output runs a command and returns its standard output.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
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
	if p.backends != nil {
		p.backends.stop()
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

// endpoints returns the EndpointSlice of a Service with one pod.
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
