package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Admin asks Envoy's admin interface, a Unix socket.
type Admin struct{ client *http.Client }

// adminTimeout bounds one question.
const adminTimeout = 5 * time.Second

// NewAdmin asks at a socket.
func NewAdmin(socket string) *Admin {
	return &Admin{&http.Client{Timeout: adminTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// Healthy returns how many endpoints of each cluster Envoy connects to.
func (a *Admin) Healthy(ctx context.Context) (map[string]int32, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy/clusters?format=json", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking Envoy for the health of endpoints: %w", err)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking Envoy for the health of endpoints: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking Envoy for the health of endpoints: %s", response.Status)
	}
	// The part of envoy.admin.v3.Clusters that says so.
	var all struct {
		Statuses []struct {
			Name  string `json:"name"`
			Hosts []struct {
				Health struct {
					FailedCheck   bool   `json:"failed_active_health_check"`
					FailedOutlier bool   `json:"failed_outlier_check"`
					EDS           string `json:"eds_health_status"`
				} `json:"health_status"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		return nil, fmt.Errorf("reading what Envoy says of endpoints: %w", err)
	}
	healthy := map[string]int32{}
	for _, c := range all.Statuses {
		healthy[c.Name] = 0
		for _, h := range c.Hosts {
			if !h.Health.FailedCheck && !h.Health.FailedOutlier && (h.Health.EDS == "" || h.Health.EDS == "HEALTHY") {
				healthy[c.Name]++
			}
		}
	}
	return healthy, nil
}
