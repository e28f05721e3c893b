package proxy

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/densityops/oooi/test/lab"
)

// minimalEnvoy is an Envoy that does the least that SNI passthrough needs. What the Envoy of oooi costs more is due to
// its configuration: a chain for each name, stats, log, limits and health checks.
const minimalEnvoy = "minimal Envoy"

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
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: tls
          cluster: kas
  clusters:
  - name: kas
    type: STATIC
    load_assignment:
      cluster_name: kas
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: %[3]s, port_value: %[4]d}}}}]}]
`

// startMinimal starts the minimal Envoy. All names lead to the same endpoint.
func (b *bench) startMinimal(ctx context.Context, _ int) (pid int, stop func(), err error) {
	bootstrap := fmt.Appendf(nil, minimalConfig, filepath.Join(b.Dir, "minimal.sock"), minimalAddress, kas, backendPort)
	config, err := b.onOneCPU(lab.EnvoyConfig{Bootstrap: bootstrap, Args: []string{"--log-level", "warning"}, Logf: b.Progress}, b.proxyCPU)
	if err != nil {
		return 0, nil, err
	}
	envoy, err := lab.StartEnvoy(ctx, config)
	if err != nil {
		return 0, nil, err
	}
	return envoy.PID(), func() { _ = envoy.Stop() }, nil
}
