package hcpapps

import (
	"github.com/coredns/coredns/plugin"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// requests counts queries inside the plugin's zones by what became of them.
var requests = promauto.NewCounterVec(prometheus.CounterOpts{
	Namespace: plugin.Namespace,
	Subsystem: "hcpapps",
	Name:      "requests_total",
	Help:      "Number of queries, by the client's view, the zone and what became of them: success, nodata, nxdomain, refused, servfail, passed.",
}, []string{"server", "view", "zone", "answer"})
