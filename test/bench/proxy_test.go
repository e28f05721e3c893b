package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/densityops/oooi/test/lab"
)

// Numbers of routes with targets, and the initial number.
const targetRoutes, targetStartRoutes = 1000, 5000

// A proxyBench is the part for the proxy.
type proxyBench struct {
	*bench

	envoy  string // path of the binary
	hellos [][]byte
}

// TestProxy measures xdsd with the real Envoy: the time from a change in a real API server to the first connection that uses
// it, CPU, memory, Envoy's start with all routes, and connections per second of Envoy compared with HAProxy and a minimal Envoy.
func TestProxy(t *testing.T) {
	b := &proxyBench{bench: newBench(t, "Proxy", lab.Config{}, haproxyProgram)}
	var err error
	b.envoy, err = lab.InstallEnvoy(t.Context(), t.Logf)
	b.check(err)
	for name, value := range map[string]string{"ip_local_port_range": "1024 65535", "tcp_tw_reuse": "1", "tcp_max_tw_buckets": "8192"} {
		b.check(os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o600)) // many short connections
	}
	b.startBackend()
	b.check(b.objects.create(t.Context(), routedObjects()))
	for i, n := range b.routes {
		b.Logf("filling the API server: %d Routes and Services", n)
		b.fill(len(b.hellos), n, func(ctx context.Context, number int) error {
			r := route(number)
			return b.objects.create(ctx, service(r.name(), 443, r.endpoint(false))+routeTo(r, r))
		})
		for r := route(len(b.hellos)); int(r) < n; r++ {
			b.hellos = append(b.hellos, lab.ClientHello(b, r.host()))
		}
		b.measureRoutes(n, i == 0, i == len(b.routes)-1)
	}
}

// measureRoutes measures changes with n routes, at the first size also compares Envoy with others, and at the last size also
// measures the start of Envoy.
func (b *proxyBench) measureRoutes(n int, first, last bool) {
	b.Helper()
	daemon := b.startXdsd()
	defer daemon.Kill(b)
	envoy := b.startEnvoy(nil)
	b.awaitAll(envoyAddress, n, ofRoute)
	b.measureRouteChanges(daemon.PID(), envoy.PID(), n)
	b.measureIdle(daemon.PID(), envoy.PID(), n)
	b.measureConnections(envoy.PID())
	if last {
		b.measureStarts(envoy, n)
	}
	envoy.Kill(b)
	if first {
		b.compareProxies(n)
	}
}

// startXdsd starts xdsd serve as in a pod that setup deploys, and waits until it is ready.
func (b *proxyBench) startXdsd() *lab.Daemon {
	b.Helper()
	const state, self = "127.0.0.1:9902", namespace + "/" + routedCluster
	const aboveAnyRate = "1000000" // a limit of new connections that no measurement reaches, unlike the default
	d := b.start("xdsd", nil, b.program(xdsd), "serve", "--kubeconfig", b.management.Kubeconfig(),
		"--proxy-server", self, "--infra", self, "--hosted-cluster", self, "--socket", b.path("ads.sock"), "--bind", envoyAddress, "--http", state,
		"--pod", routedCluster, "--connections-per-second", aboveAnyRate, "--admin-socket", b.path("admin.sock"), "--snapshot", b.path("proxy.json"))
	lab.Poll(b, "xdsd", func() bool { status, _ := lab.Get(b, "http://"+state+"/readyz"); return status == http.StatusOK })
	return d
}

func (b *proxyBench) path(name string) string { return filepath.Join(b.dir, name) }

// startEnvoy starts Envoy with the output of xdsd bootstrap: with one thread on the given CPU, or on all if cpu is nil.
func (b *proxyBench) startEnvoy(cpu *int) *lab.Envoy {
	b.Helper()
	flags := []string{"bootstrap", "--proxy-server", namespace + "/" + routedCluster, "--node-id", routedCluster, "--socket", b.path("ads.sock"), "--admin-socket", b.path("admin.sock")}
	bootstrap, err := exec.CommandContext(b.Context(), b.program(xdsd), flags...).Output()
	b.check(err)
	args, err := exec.CommandContext(b.Context(), b.program(xdsd), append(flags, "--args")...).Output()
	b.check(err)
	return b.newEnvoy(cpu, lab.EnvoyConfig{Bootstrap: bootstrap, Args: strings.Fields(string(args)), Unready: true})
}

func (b *proxyBench) newEnvoy(cpu *int, config lab.EnvoyConfig) *lab.Envoy {
	b.Helper()
	config.Binary, config.Args = b.envoy, append(config.Args, "--log-level", "warning")
	if cpu != nil {
		config.Args = append(config.Args, "--concurrency", "1")
		config.Binary = b.write("envoy", fmt.Sprintf("#!/bin/sh\nexec taskset -c %d %q \"$@\"\n", *cpu, b.envoy))
		b.check(os.Chmod(config.Binary, 0o700))
	}
	return lab.NewEnvoy(b, config)
}

// measureRouteChanges makes changes one at a time. xdsd and Envoy may use every CPU.
func (b *proxyBench) measureRouteChanges(daemon, envoy, n int) {
	b.Helper()
	changes, moves, adds, cpu := b.changes, target{}, target{}, target{}
	switch {
	case n == targetRoutes:
		moves, adds, cpu = target{"<=", 50}, target{"<=", 100}, target{"<=", 1.5}
	case n > targetRoutes: // changes take longer with more routes
		changes = max(1, changes/3)
	}
	random := rand.New(rand.NewPCG(3, 4))
	moved := map[route]bool{}
	b.measureKind(fmt.Sprintf("%d routes: a Service's endpoint moves", n), daemon, envoy, changes, time.Millisecond, moves, cpu, func(int) change {
		r := route(random.IntN(n))
		moved[r] = !moved[r]
		isMoved := moved[r]
		return change{
			func(ctx context.Context) error { return b.objects.move(ctx, r, isMoved) },
			func() error { return b.expect(envoyAddress, b.hellos[r], r.endpoint(isMoved)) },
		}
	})
	for r, isMoved := range moved {
		if isMoved {
			b.check(b.objects.move(b.Context(), r, false))
		}
	}
	// An added host has the Service of an existing one, so that only a filter chain is added. It takes longer, so that the
	// connections that check for it, which use Envoy's CPU time, have longer pauses.
	added := func(i int) route { return route(maxRoutes + i) }
	b.measureKind(fmt.Sprintf("%d routes: a host is added", n), daemon, envoy, changes, 5*time.Millisecond, adds, target{}, func(i int) change {
		to, hello := route(random.IntN(n)), lab.ClientHello(b, added(i).host())
		return change{
			func(ctx context.Context) error { return b.objects.create(ctx, routeTo(added(i), to)) },
			func() error { return b.expect(envoyAddress, hello, to.endpoint(false)) },
		}
	})
	for i := range changes {
		b.check(b.objects.removeRoute(b.Context(), added(i)))
	}
	// All hosts are removed when the last one leads to the API server again.
	hello := lab.ClientHello(b, added(changes-1).host())
	lab.Poll(b, "the removal of all added hosts", func() bool { return b.expect(envoyAddress, hello, kas) == nil })
}

// measureKind makes changes of one kind, and adds their times, and CPU time per change, which of Envoy includes the connections
// that check for it.
func (b *proxyBench) measureKind(what string, daemon, envoy, changes int, poll time.Duration, p99, cpu target, next func(i int) change) {
	b.Helper()
	before := [2]time.Duration{b.cpuTime(daemon), b.cpuTime(envoy)}
	b.addTimes(what, b.timeChanges(what, changes, poll, next), target{}, p99)
	each := func(d time.Duration) float64 { return milliseconds(d) / float64(changes) }
	b.addFigure(what+", CPU of xdsd for each", each(b.cpuTime(daemon)-before[0]), "ms", cpu)
	b.addFigure(what+", CPU of Envoy for each", each(b.cpuTime(envoy)-before[1]), "ms", target{})
}

// measureIdle waits until the proxy is idle, which Envoy is only half a minute after hundreds of changes, and measures for some
// health checks of each backend.
func (b *proxyBench) measureIdle(daemon, envoy, n int) {
	b.Helper()
	xdsdLimit, envoyLimit := target{}, target{}
	if n == targetRoutes {
		xdsdLimit, envoyLimit = target{"<=", 0.1}, target{"<=", 1}
	}
	b.Logf("%d routes: idle", n)
	time.Sleep(12 * b.settle)
	before, from := [2]time.Duration{b.cpuTime(daemon), b.cpuTime(envoy)}, time.Now()
	time.Sleep(6 * b.settle)
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / time.Since(from).Seconds() }
	b.addFigure(fmt.Sprintf("%d routes: xdsd idle", n), percent(b.cpuTime(daemon)-before[0]), "% of a CPU", xdsdLimit)
	b.addFigure(fmt.Sprintf("%d routes: Envoy idle", n), percent(b.cpuTime(envoy)-before[1]), "% of a CPU", envoyLimit)
	b.addFigure(fmt.Sprintf("%d routes: memory of xdsd", n), b.memory(daemon), "MB", target{})
	b.addFigure(fmt.Sprintf("%d routes: memory of Envoy", n), b.memory(envoy), "MB", target{})
}

// measureStarts kills Envoy and starts it again repeatedly, while xdsd runs and has all routes.
func (b *proxyBench) measureStarts(envoy *lab.Envoy, n int) {
	b.Helper()
	b.Logf("%d routes: starting Envoy %d times", n, b.starts)
	limit := target{}
	if n == targetStartRoutes {
		limit = target{"<=", 2500}
	}
	var took []time.Duration
	for range b.starts {
		envoy.Kill(b)
		started := time.Now()
		envoy.Daemon.Start(b) // awaitAll waits for more
		all := b.awaitAll(envoyAddress, n, ofRoute)
		took = append(took, all.Sub(started))
	}
	b.addTimes(fmt.Sprintf("Envoy's start, until all of %d routes work", n), took, limit, target{})
}

// compareProxies compares Envoy, as oooi configures it, with other proxies, each with one thread on one CPU.
func (b *proxyBench) compareProxies(n int) {
	b.Helper()
	envoy := b.startEnvoy(b.serverCPU)
	minimal := b.newEnvoy(b.serverCPU, lab.EnvoyConfig{Bootstrap: fmt.Appendf(nil, minimalConfig, b.path("minimal.sock"), minimalAddress, kas, backendPort)})
	haproxy := b.startHAProxy(n)
	defer func() {
		envoy.Kill(b)
		minimal.Kill(b)
		haproxy.Kill(b)
	}()
	sides := []struct {
		name, address string
		pid           int
		endpoint      func(route) netip.Addr
		target        target
	}{
		{"Envoy", envoyAddress, envoy.PID(), ofRoute, target{}},
		{"HAProxy", haproxyAddress, haproxy.PID(), ofRoute, target{}},
		{"minimal Envoy", minimalAddress, minimal.PID(), func(route) netip.Addr { return kas }, target{">=", 0.95}},
	}
	for _, s := range sides {
		b.awaitAll(s.address, n, s.endpoint)
	}
	defer b.pinSelf()()
	for _, clients := range []int{32, 1} {
		var list []side
		for _, s := range sides {
			limit := s.target
			if clients == 1 {
				limit = target{}
			}
			list = append(list, side{s.name, s.pid, func(slice time.Duration) sample { return b.connectAll(s.address, s.endpoint, clients, slice) }, limit})
		}
		b.compare(fmt.Sprintf("%d routes, %d clients", n, clients), list...)
	}
}

// minimalConfig configures an Envoy that does the least that SNI passthrough needs. What the Envoy of oooi costs more is due to
// its configuration: a chain for each name, stats, log, limits and health checks.
const minimalConfig = `
admin: {address: {pipe: {path: %[1]s}}}
static_resources:
  listeners:
  - name: tls
    address: {socket_address: {address: %[2]s, port_value: 443}}
    listener_filters:
    - name: tls_inspector
      typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector}
    filter_chains:
    - filters:
      - name: tcp_proxy
        typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: tls, cluster: kas}
  clusters:
  - name: kas
    type: STATIC
    load_assignment:
      cluster_name: kas
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %[3]s, port_value: %[4]d}}}}]}]
`

// haproxyProgram is HAProxy's path in Debian, which is not in a user's PATH.
const haproxyProgram = "/usr/sbin/haproxy"

// haproxyConfig configures HAProxy as xdsd configures Envoy: one backend per SNI, retries, TCP keepalive and health checks.
const haproxyConfig = `
global
	nbthread 1
	maxconn 4000
defaults
	mode tcp
	timeout connect 5s
	timeout client 24h
	timeout server 24h
	retries 3
	option clitcpka
	option srvtcpka
	balance leastconn
	default-server inter 5s fall 2 rise 1
frontend tls
	bind %[2]s:443
	tcp-request inspect-delay 15s
	tcp-request content accept if { req_ssl_hello_type 1 }
	use_backend %%[req_ssl_sni,lower,map(%[1]s)] if { req_ssl_sni,lower,map(%[1]s) -m found }
	default_backend kas
backend kas
	server one %[3]s:%[4]d check
`

// startHAProxy starts HAProxy with n routes.
func (b *proxyBench) startHAProxy(n int) *lab.Daemon {
	b.Helper()
	var config, hosts strings.Builder
	for r := range route(n) {
		fmt.Fprintf(&hosts, "%s %s\n", r.host(), r.name())
		fmt.Fprintf(&config, "backend %s\n\tserver one %s:%d check\n", r.name(), r.endpoint(false), backendPort)
	}
	text := fmt.Sprintf(haproxyConfig, b.write("hosts.map", hosts.String()), haproxyAddress, kas, backendPort) + config.String()
	return b.start("haproxy", b.serverCPU, haproxyProgram, "-db", "-f", b.write("haproxy.cfg", text))
}
