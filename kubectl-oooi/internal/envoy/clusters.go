package envoy

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/densityops/oooi/kubectl-oooi/internal/output"
)

// Clusters are the clusters of one Envoy.
type Clusters struct {
	Header `json:",inline"`

	Clusters []Cluster `json:"clusters"`
	// Name selects clusters with this text in their names; "" selects all.
	Name string `json:"-"`
}

// A Cluster is a set of endpoints.
type Cluster struct {
	Name      string     `json:"name"`
	Endpoints []Endpoint `json:"endpoints"`
}

// An Endpoint is a server.
type Endpoint struct {
	// Address is ADDRESS:PORT, or the path of a Unix socket.
	Address string `json:"address"`
	Healthy bool   `json:"healthy"`
	// Reason is why the endpoint is unhealthy; empty if it is healthy.
	Reason string `json:"reason,omitempty"`
	// Connections is the number of open connections. TotalConnections and FailedConnections count since Envoy added
	// the endpoint.
	Connections       int64 `json:"connections"`
	TotalConnections  int64 `json:"totalConnections"`
	FailedConnections int64 `json:"failedConnections"`
}

// hostDump is the used part of envoy.admin.v3.HostStatus.
type hostDump struct {
	Address address `json:"address"`
	Stats   []struct {
		Name  string      `json:"name"`
		Value json.Number `json:"value"` // a string, absent for 0
	} `json:"stats"`
	Health struct {
		FailedCheck   bool   `json:"failed_active_health_check"`
		FailedOutlier bool   `json:"failed_outlier_check"`
		Pending       bool   `json:"pending_active_hc"`
		Timeout       bool   `json:"active_hc_timeout"`
		EDS           string `json:"eds_health_status"`
	} `json:"health_status"`
}

func (h *hostDump) endpoint() Endpoint {
	e := Endpoint{Address: h.Address.String(), Reason: h.reason()}
	e.Healthy = e.Reason == ""
	for _, s := range h.Stats {
		n, _ := s.Value.Int64() // 0 if it is absent
		switch s.Name {
		case "cx_active":
			e.Connections = n
		case "cx_total":
			e.TotalConnections = n
		case "cx_connect_fail":
			e.FailedConnections = n
		}
	}
	return e
}

// reason returns why Envoy considers the endpoint unhealthy; empty if it is healthy.
func (h *hostDump) reason() string {
	var reasons []string
	switch health := h.Health; {
	case health.Pending:
		reasons = append(reasons, "not checked yet")
	case health.FailedCheck && health.Timeout:
		reasons = append(reasons, "health check timed out")
	case health.FailedCheck:
		reasons = append(reasons, "health check failed")
	}
	if h.Health.FailedOutlier {
		reasons = append(reasons, "ejected after failed connections")
	}
	if h.Health.EDS != "" && h.Health.EDS != "HEALTHY" {
		reasons = append(reasons, strings.ToLower(h.Health.EDS))
	}
	return strings.Join(reasons, ", ")
}

// Read reads the clusters, sorted by name.
func (c *Clusters) Read(ctx context.Context, get Getter) error {
	page, err := decode[struct {
		Statuses []struct {
			Name  string     `json:"name"`
			Hosts []hostDump `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}](ctx, get, "/clusters?format=json")
	if err != nil {
		return err
	}
	c.Clusters = []Cluster{}
	for _, s := range page.Statuses {
		if !strings.Contains(s.Name, c.Name) {
			continue
		}
		cluster := Cluster{Name: s.Name, Endpoints: []Endpoint{}}
		for i := range s.Hosts {
			cluster.Endpoints = append(cluster.Endpoints, s.Hosts[i].endpoint())
		}
		c.Clusters = append(c.Clusters, cluster)
	}
	slices.SortFunc(c.Clusters, func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// clusterRow is an endpoint of a cluster, or a cluster without endpoints.
type clusterRow struct {
	cluster  string
	endpoint *Endpoint
}

// ClustersTable returns a table with a row for each endpoint, and for each cluster without endpoints.
func ClustersTable(reports []*Clusters, wide bool) *output.Table {
	var list []Row[clusterRow]
	for _, r := range reports {
		for i := range r.Clusters {
			c := &r.Clusters[i]
			if len(c.Endpoints) == 0 {
				list = append(list, Row[clusterRow]{r.Metadata.Name, clusterRow{cluster: c.Name}})
			}
			for j := range c.Endpoints {
				list = append(list, Row[clusterRow]{r.Metadata.Name, clusterRow{c.Name, &c.Endpoints[j]}})
			}
		}
	}
	column := func(title string, value func(*Endpoint) string) output.Column[Row[clusterRow]] {
		return output.Column[Row[clusterRow]]{Title: title, Value: func(r Row[clusterRow]) string {
			if r.Part.endpoint == nil {
				return ""
			}
			return value(r.Part.endpoint)
		}}
	}
	onlyWide := func(c output.Column[Row[clusterRow]]) output.Column[Row[clusterRow]] { c.Wide = true; return c }
	return output.NewTable([]output.Column[Row[clusterRow]]{
		podColumn[clusterRow](),
		{Title: "CLUSTER", Value: func(r Row[clusterRow]) string { return r.Part.cluster }},
		column("ENDPOINT", func(e *Endpoint) string { return e.Address }),
		column("HEALTHY", func(e *Endpoint) string { return strconv.FormatBool(e.Healthy) }),
		column("REASON", func(e *Endpoint) string { return e.Reason }),
		column("CONNECTIONS", func(e *Endpoint) string { return strconv.FormatInt(e.Connections, 10) }),
		onlyWide(column("TOTAL", func(e *Endpoint) string { return strconv.FormatInt(e.TotalConnections, 10) })),
		onlyWide(column("FAILED", func(e *Endpoint) string { return strconv.FormatInt(e.FailedConnections, 10) })),
	}, list, wide)
}
