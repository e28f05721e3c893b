package proxy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// haproxy is HAProxy's path in Debian, which is not in a user's PATH.
const haproxy = "/usr/sbin/haproxy"

// haproxyConfig configures HAProxy as xdsd configures Envoy: one backend per SNI, retries, TCP keepalive and health
// checks.
const haproxyConfig = `
global
	nbthread 1
	maxconn 4000
	stats socket %[1]s/haproxy.sock
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
	use_backend %%[req_ssl_sni,lower,map(%[1]s/hosts.map)] if { req_ssl_sni,lower,map(%[1]s/hosts.map) -m found }
	default_backend kas
backend kas
	server one %[3]s:%[4]d check
`

// startHAProxy starts HAProxy with n routes.
func (b *bench) startHAProxy(ctx context.Context, n int) (pid int, stop func(), err error) {
	var config, hosts strings.Builder
	fmt.Fprintf(&config, haproxyConfig, b.Dir, haproxyAddress, kas, backendPort)
	for r := range route(n) {
		fmt.Fprintf(&hosts, "%s %s\n", r.host(), r.name())
		fmt.Fprintf(&config, "backend %s\n\tserver one %s:%d check\n", r.name(), r.endpoint(false), backendPort)
	}
	path := filepath.Join(b.Dir, "haproxy.cfg")
	for path, text := range map[string]string{path: config.String(), filepath.Join(b.Dir, "hosts.map"): hosts.String()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return 0, nil, fmt.Errorf("writing HAProxy's configuration: %w", err)
		}
	}
	p, err := b.start(ctx, "haproxy", b.proxyCPU, haproxy, "-db", "-f", path)
	if err != nil {
		return 0, nil, err
	}
	return p.PID(), func() { p.Stop() }, nil
}
