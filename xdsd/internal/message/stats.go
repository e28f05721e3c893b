package message

import "fmt"

// ClusterStats are the stats of each cluster, and UDPClusterStats additional stats of UDP clusters, without the
// prefix "cluster.NAME.". They replace Envoy's about 100 stats. They show whether a cluster has traffic and healthy
// endpoints.
var (
	ClusterStats = []string{
		"membership_healthy", "membership_total", "upstream_cx_active", "upstream_cx_connect_fail", "upstream_cx_none_healthy",
		"upstream_cx_overflow", "upstream_cx_rx_bytes_total", "upstream_cx_total", "upstream_cx_tx_bytes_total",
	}
	UDPClusterStats = []string{"udp.sess_rx_errors", "udp.sess_tx_errors"}
)

// Stats that some clusters have in addition.
const (
	// PendingOverflowStat is of each cluster with a limit of connections that are being opened: the number of those that were
	// refused at it.
	PendingOverflowStat = "upstream_rq_pending_overflow"
	// HealthCheckFailureStat is of each cluster with health checks: the number of those that failed.
	HealthCheckFailureStat = "health_check.failure"
)

// RouteStats returns the prefix of the stats of the connections to a port whose server name matches one route, or of the
// sessions of a UDP port. name is the route's host, or what stands for other connections. Tags in the bootstrap configuration make
// labels of its parts.
func RouteStats(port int32, tenant, name string) string {
	return fmt.Sprintf("%d;%s;%s", port, tenant, name)
}
