package bootstrap

import (
	"slices"

	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/densityops/oooi/xdsd/internal/message"
)

// statTags are the tags of stats, with the regular expression that replaces the default one.
var statTags = []struct{ name, regex string }{
	// Only these of Envoy's default tags are used. envoy.tcp_prefix is omitted: it would contain a route's name only up to its first dot.
	{"envoy.cluster_name", ""},
	{"envoy.http_conn_manager_prefix", ""},
	{"envoy.listener_address", ""},
	{"envoy.local_listener_ratelimit_prefix", ""},
	{"envoy.worker_id", ""},
	// The parts of message.RouteStats. Envoy removes the first group from the name of the stat; the second one is the tag's
	// value. Each regular expression begins with the first part of the name: otherwise Envoy would match it with every stat.
	{"port", `^tcp\.(([0-9]+);)`},
	{"port", `^udp\.(([0-9]+);)`},
	{"tenant", `^tcp\.[0-9]+;(([^;]*);)`},
	{"tenant", `^udp\.[0-9]+;(([^;]*);)`},
	{"server_name", `^tcp\.[0-9]+;[^;]*;((.+)\.)[a-z_]+$`},
	{"server_name", `^udp\.[0-9]+;[^;]*;((.+)\.)[a-z_]+$`},
}

// Most of the about 100 stats that Envoy has for each cluster by default are excluded, and of the about 15 for each filter chain.
// The remaining ones show the traffic by name, and of clusters those in message.ClusterStats. Without the exclusion, Envoy starts
// slowly with thousands of clusters, and serves Prometheus 91 MB in a minute.
var (
	// processStats are prefixes of stats of the process, of each listener and, with udp, of the sessions of each UDP port.
	processStats = []string{
		"cluster_manager.", "control_plane.", "listener.", "listener_local_ratelimit.", "listener_manager.", "overload.", "server.",
		"tls_inspector.", "udp.",
	}
	// trafficStats are the stats of the connections with each name, and of each HTTP port.
	trafficStats = []string{"downstream_cx_rx_bytes_total", "downstream_cx_total", "downstream_cx_tx_bytes_total", "no_route"}
)

func statsConfig() *metricsv3.StatsConfig {
	out := &metricsv3.StatsConfig{UseAllDefaultTags: wrapperspb.Bool(false)}
	for _, t := range statTags {
		tag := &metricsv3.TagSpecifier{TagName: t.name}
		if t.regex != "" {
			tag.TagValue = &metricsv3.TagSpecifier_Regex{Regex: t.regex}
		}
		out.StatsTags = append(out.StatsTags, tag)
	}
	included := &matcherv3.ListStringMatcher{}
	for _, prefix := range processStats {
		included.Patterns = append(included.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix}})
	}
	for _, name := range slices.Concat(trafficStats, message.ClusterStats) {
		included.Patterns = append(included.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: "." + name}})
	}
	out.StatsMatcher = &metricsv3.StatsMatcher{StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: included}}
	return out
}
