package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/densityops/oooi/api/v1alpha1"
	"github.com/densityops/oooi/xdsd/internal/bootstrap"
	"github.com/densityops/oooi/xdsd/internal/message"
)

// Admin is a client of Envoy's admin interface.
type Admin struct{ client *http.Client }

// adminTimeout limits one request.
const adminTimeout = 5 * time.Second

// NewAdmin returns a client of the admin interface on a Unix socket.
func NewAdmin(socket string) *Admin {
	return &Admin{&http.Client{Timeout: adminTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		DisableKeepAlives: true,
	}}}
}

// Healthy returns the number of endpoints that Envoy considers healthy, by name of the cluster. A cluster without
// healthy endpoints has the number 0.
func (a *Admin) Healthy(ctx context.Context) (map[string]int32, error) {
	body, err := a.request(ctx, http.MethodGet, "/clusters?format=json")
	if err != nil {
		return nil, fmt.Errorf("reading the health of endpoints from Envoy: %w", err)
	}
	// The fields of envoy.admin.v3.Clusters that are used here.
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
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, fmt.Errorf("decoding the health of endpoints from Envoy: %w", err)
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

// SetLogLevel sets the level of all of Envoy's loggers, and returns whether any of them had another level before. With
// an error it returns false.
func (a *Admin) SetLogLevel(ctx context.Context, level v1alpha1.LogLevel) (changed bool, err error) {
	body, err := a.request(ctx, http.MethodPost, "/logging") // without parameters, it only lists the levels
	if err != nil {
		return false, fmt.Errorf("reading Envoy's log level: %w", err)
	}
	for line := range strings.Lines(string(body)) {
		// "active loggers:", then "  NAME: LEVEL" for each logger
		if _, current, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && current != string(level) {
			changed = true
		}
	}
	if !changed {
		return false, nil
	}
	if _, err := a.request(ctx, http.MethodPost, "/logging?level="+url.QueryEscape(string(level))); err != nil {
		return false, fmt.Errorf("setting Envoy's log level to %s: %w", level, err)
	}
	return true, nil
}

// SetAccessLog enables or disables the access log.
func (a *Admin) SetAccessLog(ctx context.Context, enabled bool) error {
	percent := "0"
	if enabled {
		percent = "100"
	}
	if _, err := a.request(ctx, http.MethodPost, "/runtime_modify?"+message.AccessLogKey+"="+percent); err != nil {
		return fmt.Errorf("setting Envoy's access log: %w", err)
	}
	return nil
}

// Connections returns the number of open client connections, except those of the metrics listener.
func (a *Admin) Connections(ctx context.Context) (int64, error) {
	body, err := a.request(ctx, http.MethodGet, `/stats?format=json&filter=^listener\..*\.downstream_cx_active$`)
	if err != nil {
		return 0, fmt.Errorf("reading the number of connections from Envoy: %w", err)
	}
	var all struct {
		Stats []struct {
			Name  string `json:"name"`
			Value int64  `json:"value"`
		} `json:"stats"`
	}
	if err := json.Unmarshal(body, &all); err != nil {
		return 0, fmt.Errorf("decoding the number of connections from Envoy: %w", err)
	}
	var sum int64
	for _, s := range all.Stats { // one for each listener, and one for each of its threads
		own := strings.HasPrefix(s.Name, "listener.admin.") || strings.HasPrefix(s.Name, "listener."+bootstrap.MetricsListener+".")
		if !own && !strings.Contains(s.Name, ".worker_") {
			sum += s.Value
		}
	}
	return sum, nil
}

// request returns the body of a response with status 200, and an error for any other status.
func (a *Admin) request(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	return io.ReadAll(response.Body)
}
